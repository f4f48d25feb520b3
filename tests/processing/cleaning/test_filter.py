"""The filter step: a function of the user's decides, its faults are told with the document, and its code counts."""

from __future__ import annotations

import hashlib
import importlib
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from marin.errors import DataError, DocumentFunctionError
from marin.execution.artifact import at_path
from marin.processing.cleaning import build
from marin.processing.cleaning.steps import DocumentFunction
from tests.processing.cleaning import functions
from tests.processing.cleaning.small import POEMS, filtered, normalized, rows, texts, tree, write_documents

NUMBERED = [f"poem {number}" for number in range(40)]


@settings(max_examples=30)
@given(st.lists(st.text(st.sampled_from("ab東"), max_size=4), min_size=1, max_size=40), st.integers(20, 500))
def test_documents_are_kept_dropped_and_changed_as_the_function_says(
    tmp_path_factory: Any, given_: list[str], size: int
):
    folder = tmp_path_factory.mktemp("filter")
    path = write_documents(folder / "poems.jsonl", given_)
    expected = [text.replace("a", "") for text in given_]
    if not any(expected):
        with pytest.raises(DataError, match="no document is left"):
            filtered(folder / "out", path, functions.without_a, shard_bytes=size)
        return
    made = filtered(folder / "out", path, functions.without_a, shard_bytes=size)
    assert texts(folder / "out") == [text for text in expected if text]
    assert (made.documents_read, made.empty, made.duplicates) == (len(given_), expected.count(""), 0)
    for row in rows(folder / "out"):
        assert row["id"] == hashlib.sha256(row["text"].encode()).hexdigest()[:32]


@pytest.mark.parametrize(
    ("function", "dropped"), [(functions.keep_odd, {"even": 20}), (functions.keep_odd_by_numpy, {"dropped": 20})]
)
def test_what_is_dropped_is_counted_by_its_reason(tmp_path: Path, function: DocumentFunction, dropped: dict[str, int]):
    made = filtered(tmp_path / "out", write_documents(tmp_path / "poems.jsonl", NUMBERED), function)
    assert texts(tmp_path / "out") == NUMBERED[1::2]
    assert (made.documents, made.documents_read, made.dropped) == (20, 40, dropped)
    at_path(made, str(tmp_path / "out")).verify()


def test_a_function_that_keeps_all_changes_nothing(tmp_path: Path):
    path = write_documents(tmp_path / "poems.jsonl", [*POEMS, *POEMS])
    filtered(tmp_path / "out", path, functions.keep_all)
    normalized(tmp_path / "plain", path, deduplicate=False)
    assert rows(tmp_path / "out") == rows(tmp_path / "plain")


def test_a_function_that_drops_all_is_blamed(tmp_path: Path):
    path = write_documents(tmp_path / "poems.jsonl", ["ab", "a", "", "abc"])
    with pytest.raises(
        DataError,
        match=r"is left: of 4 in .*, 1 of them empty, function keep_none at .* drops 3 \(1 'dropped', 2 'odd'\)",
    ):
        filtered(tmp_path / "out", path, functions.keep_none)


def test_the_function_gets_the_id_the_source_and_the_fields(tmp_path: Path):
    path = tmp_path / "poems.jsonl"
    path.write_text('{"text": "a", "url": "u", "n": 1}\n')
    filtered(tmp_path / "out", path, functions.tells_all_it_knows, keep=(("url", "url"), ("n", "n")))
    id = hashlib.sha256(b"a").hexdigest()[:32]
    assert texts(tmp_path / "out") == [f"{id} poems.jsonl#1 {{'url': 'u', 'n': '1'}}"]


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (functions.fails_on_seven, r"raised ZeroDivisionError: division by zero; mend the function, or leave such"),
        (functions.forgets_to_return, r"returned None, which is none of True, False, a text or Drop\('reason'\); mend"),
        (
            functions.fails_without_words,
            r"raised SpeechlessError: what can't be shown \(RuntimeError\); mend",
        ),
        (functions.fails_with_half_a_character, r"raised ValueError: poem 7 \\ud800; mend the function"),
        (functions.answers_what_can_not_be_shown, r"returned what can't be shown \(RuntimeError\), which is none of"),
        (functions.drops_for_half_a_character, r"returned Drop\(\) with a reason with half of a character in it, at 0"),
        (functions.exits, r"raised SystemExit: 0; mend the function"),
        (functions.ends_as_no_exception_does, r"raised GeneratorExit: ; mend the function"),
        (functions.answers_half_a_character, r"returned a text with half of a character in it, at 6, which is not UT"),
    ],
)
def test_a_fault_of_the_function_names_the_document_and_the_function(
    tmp_path: Path, function: DocumentFunction, message: str
):
    path = write_documents(tmp_path / "poems.jsonl", NUMBERED[7:])
    id = hashlib.sha256(b"poem 7").hexdigest()[:32]
    called = rf"function {function.__name__} at functions\.py:\d+"  # pyright: ignore[reportFunctionMemberAccess]
    with pytest.raises(DocumentFunctionError, match=rf"document {id} \(.*poems\.jsonl#1\): {called} {message}"):
        filtered(tmp_path / "out", path, function)


def test_a_fault_in_another_process_is_told_in_the_same_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(build, "_CREW_BYTES", 0)
    path = write_documents(tmp_path / "poems.jsonl", NUMBERED)
    with pytest.raises(DocumentFunctionError, match=r"poems\.jsonl@\d+#\d+\): .* raised ZeroDivisionError") as told:
        filtered(tmp_path / "out", path, functions.fails_on_seven, shard_bytes=100, workers=2)
    assert "in fails_on_seven" in str(told.value.__cause__)


@pytest.mark.parametrize(
    "function", [functions.fails_without_words, functions.exits, functions.drops_for_half_a_character]
)
def test_any_fault_in_another_process_names_the_document(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, function: DocumentFunction
):
    monkeypatch.setattr(build, "_CREW_BYTES", 0)
    path = write_documents(tmp_path / "poems.jsonl", NUMBERED)
    with pytest.raises(DocumentFunctionError, match=rf"poems\.jsonl.*#\d+\): function {function.__name__} at"):  # pyright: ignore[reportFunctionMemberAccess]
        filtered(tmp_path / "out", path, function, shard_bytes=300, workers=2)


def test_whoever_interrupts_is_told_what_was_going_on(tmp_path: Path):
    with pytest.raises(KeyboardInterrupt) as told:
        filtered(tmp_path / "out", write_documents(tmp_path / "poems.jsonl", ["poem 7"]), functions.interrupts)
    [note] = told.value.__notes__
    assert "function interrupts at" in note
    assert "poems.jsonl#1" in note


def test_what_is_skipped_until_nothing_is_left_is_told(tmp_path: Path):
    path = write_documents(tmp_path / "poems.jsonl", ["poem 1"])
    skipping: dict[str, Any] = {"on_error": "skip", "on_bad_record": "skip", "max_bad_fraction": 1.0}
    with pytest.raises(DataError, match=r"is left: of 1 in .*, function exits at .* failed on 1 \(1 SystemE"):
        filtered(tmp_path / "out", path, functions.exits, **skipping)
    path.write_text("no JSON")
    with pytest.raises(DataError, match=r"is left: what there is in .* can't be read: 1 broken JSON \(such"):
        filtered(tmp_path / "bad", path, functions.keep_all, **skipping)


def test_faults_may_be_skipped_and_are_counted_with_an_example(tmp_path: Path):
    path = write_documents(tmp_path / "poems.jsonl", NUMBERED)
    with pytest.raises(
        DocumentFunctionError,
        match=r"fails_on_seven at .* failed on 1 of 40 .* than max_bad_fraction=0\.01: 1 ZeroDivisionError \(such",
    ):
        filtered(tmp_path / "out", path, functions.fails_on_seven, on_error="skip")
    made = filtered(tmp_path / "out", path, functions.fails_on_seven, on_error="skip", max_bad_fraction=0.05)
    [failed] = made.failed
    assert (failed.reason, failed.count, made.documents) == ("ZeroDivisionError", 1, 39)
    assert "poems.jsonl#8" in failed.example


def test_reasons_that_are_different_for_each_document_are_refused(tmp_path: Path):
    path = write_documents(tmp_path / "poems.jsonl", [f"poem {number}" for number in range(1001)])
    with pytest.raises(
        DocumentFunctionError, match=r"counts_in_its_reasons at .* for the 1,001th reason, 'poem 1000': give"
    ):
        filtered(tmp_path / "out", path, functions.counts_in_its_reasons)


def test_a_function_that_ends_its_process_is_told_and_what_is_finished_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(build, "_CREW_BYTES", 0)
    path = write_documents(tmp_path / "poems.jsonl", NUMBERED)
    with pytest.raises(DataError, match=r"one of 2 worker processes was ended from outside"):
        filtered(tmp_path / "out", path, functions.ends_its_process, shard_bytes=200, workers=2)


def test_any_number_of_workers_makes_the_same_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(build, "_CREW_BYTES", 0)
    path = write_documents(tmp_path / "poems.jsonl", NUMBERED)
    made = [
        filtered(tmp_path / str(workers), path, functions.keep_odd, workers=workers, shard_bytes=100)
        for workers in (1, 3)
    ]
    assert made[0] == made[1]
    assert made[0].shards > 2
    assert tree(tmp_path / "1") == tree(tmp_path / "3")


MODULE = """
WORD = "poem 1"

def helper(text):
    return text.startswith(WORD)

def keep(document):
    return helper(document.text)
"""


@pytest.mark.parametrize(
    ("change", "is_used"),
    [
        (("", ""), True),
        (("def helper", "# a comment\ndef helper"), True),
        (('"poem 1"', '"poem 2"'), False),
        (("text.startswith(WORD)", "WORD in text"), False),
    ],
)
def test_parts_that_other_code_of_the_function_has_made_are_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: tuple[str, str], is_used: bool
):
    monkeypatch.syspath_prepend(tmp_path)
    path = write_documents(tmp_path / "poems.jsonl", NUMBERED)

    def keep(source: str) -> DocumentFunction:
        (tmp_path / "cleaning_rules.py").write_text(source)
        sys.modules.pop("cleaning_rules", None)
        importlib.invalidate_caches()
        return importlib.import_module("cleaning_rules").keep

    with monkeypatch.context() as patch:
        patch.setattr(build, "write_manifest", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            filtered(tmp_path / "out", path, keep(MODULE), shard_bytes=200)
    before = {each: each.stat().st_ino for each in (tmp_path / "out").glob("part-*")}
    made = filtered(tmp_path / "out", path, keep(MODULE.replace(*change) if change[0] else MODULE), shard_bytes=200)
    after = {each: each.stat().st_ino for each in (tmp_path / "out").glob("part-*")}
    assert (before == after) is is_used
    fresh = filtered(tmp_path / "fresh", path, keep(MODULE.replace(*change) if change[0] else MODULE), shard_bytes=200)
    assert made == fresh
    assert texts(tmp_path / "out") == texts(tmp_path / "fresh")
