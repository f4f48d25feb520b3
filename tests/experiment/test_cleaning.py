"""The builders that prepare text: handles that do nothing, recipes that hold what was written, and the whole path."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import marin.experiment.cleaning
import marin.experiment.data
from marin.errors import ConfigurationError, DataError, FingerprintError, RunError
from marin.execution import load, resolve
from marin.execution.artifact import Artifact, at_path
from marin.execution.code import code_of
from marin.execution.context import RunContext
from marin.execution.lazy import ArtifactStep
from marin.execution.sendable import dumped
from marin.experiment.cleaning import Document, DocumentSet, filtered, normalized
from marin.experiment.data import hf, tokenized
from marin.processing.cleaning.steps import DocumentInput, FilterConfig, NormalizeConfig
from marin.processing.input_files import input_files
from marin.processing.sources import FileSource, files
from marin.processing.tokenize.cache import TokenCache
from marin.testing import temporary_store
from tests.processing.cleaning.functions import fails_on_seven, keep_odd, shout
from tests.processing.cleaning.small import texts, write_documents

VERSION = "2026.07.01"
RAW = ArtifactStep(name="raw/poems", version=VERSION, run="my_project.poems:write")


def poems(**changes: Any) -> ArtifactStep[DocumentSet]:
    return normalized("documents/poems", **{"source": "poems/*.jsonl", "version": VERSION, **changes})


def odd_poems(**changes: Any) -> ArtifactStep[DocumentSet]:
    given: dict[str, Any] = {"source": "poems/*.jsonl", "function": keep_odd, "version": VERSION, **changes}
    return filtered("documents/odd", **given)


def config(step: ArtifactStep[Any], **inputs: Artifact) -> Any:
    by_id = {str(dep.id): inputs[dep.name.rsplit("/", 1)[1]] for dep in step.deps}
    return step.build_config(RunContext(step, output_path="/out", prefix="/", region=None, inputs=by_id))


def test_configs_hold_what_was_written():
    made: NormalizeConfig = config(poems(keep={"page": "meta.url"}, workers=3, shard_bytes=10**6))
    assert made.documents == DocumentInput(source=FileSource(paths=("poems/*.jsonl",)), keep=(("page", "meta.url"),))
    assert (made.deduplicate, made.workers, made.shard_bytes) == (True, 3, 10**6)
    asked: FilterConfig = config(odd_poems(keep=["url"], on_error="skip"))
    assert (asked.documents.keep, asked.on_error) == ((("url", "url"),), "skip")


def test_what_is_written_is_identity_and_what_only_moves_the_work_is_not():
    shared: list[dict[str, Any]] = [
        {"source": "poems/*"},
        {"source": hf("poems/all")},
        {"source": "poems/all", "split": "test"},
        {"source": None, "raw": RAW},
        {"text_key": "body"},
        {"keep": ["url"]},
        {"keep": {"url": "meta.url"}},
        {"on_bad_record": "skip"},
        {"on_bad_record": "skip", "max_bad_fraction": 0.5},
    ]
    own = [{"deduplicate": False}, {"unicode_form": "NFC"}, {"unicode_form": "NFKC"}, {"line_ends": "lf"}]
    of_filter: list[dict[str, Any]] = [{"function": shout}, {"on_error": "skip"}]
    for make, changes in ((poems, shared + own), (odd_poems, shared + of_filter)):
        base = make().fingerprint().digest
        digests = [make(**change).fingerprint().digest for change in changes]
        assert len({base, *digests}) == len(changes) + 1
        assert make(workers=7, shard_bytes=10**6, resources="cpu").fingerprint().digest == base
        assert make(source=None, paths="poems/*.jsonl").fingerprint().digest == base


def test_the_code_of_the_function_is_watched():
    code = code_of(odd_poems().run)  # type: ignore[arg-type]
    assert "keep_odd" in code.modules["tests.processing.cleaning.functions"].definitions


def test_a_handle_of_documents_is_read_with_its_sources_and_columns():
    step = odd_poems(source=None, raw=poems())
    made = config(step, poems=at_path(Artifact(), "/store/documents/poems"))
    assert made.documents == DocumentInput(source=FileSource(paths=("/store/documents/poems",)), is_document_set=True)
    assert not config(odd_poems(source=RAW), poems=at_path(Artifact(), "/raw")).documents.is_document_set


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"source": None}, r"give the documents once, as source=, paths= or raw=; none is given"),
        ({"text_key": ""}, r"text_key='' is not the name of a field"),
        ({"on_bad_record": "drop"}, r"on_bad_record='drop' is neither 'error' nor 'skip'"),
        ({"max_bad_fraction": 2}, r"max_bad_fraction=2 is not a fraction from 0 to 1"),
        ({"keep": "url"}, r"keep='url' is no list of fields: write keep=\['url', 'meta\.language'\]"),
        ({"keep": ["url", "url"]}, r"keep=\['url', 'url'\] names a field twice"),
        ({"keep": [""]}, r"keep has '', which is not the name of a field"),
        ({"keep": ["id"]}, r"keep has 'id', a column that all .* keep=\{'original_id': 'id'\}"),
        ({"workers": 0}, r"workers=0 is not a whole number of at least 1"),
        ({"workers": True}, r"workers=True is not a whole number of at least 1"),
        (
            {"shard_bytes": 2e6},
            r"shard_bytes=2000000\.0 is not a whole number of bytes of at least 1,000,000: less",
        ),
        ({"shard_bytes": 1}, r"shard_bytes=1 is not a whole number of bytes of at least 1,000,000"),
        ({"shard_bytes": 999_999}, r"shard_bytes=999999 is not .*; leave it out for shards of 16 to 256 MB"),
        ({"shard_bytes": True}, r"shard_bytes=True is not a whole number of bytes"),
        ({"shard_bytes": "64MB"}, r"shard_bytes='64MB' is not a whole number of bytes"),
        ({"source": None, "raw": poems(), "text_key": "body"}, r"text_key='body', but .* has its text in 'text'"),
    ],
)
@pytest.mark.parametrize("make", [poems, odd_poems])
def test_what_can_not_work_is_refused_when_the_handle_is_made(make: Any, changes: dict[str, Any], message: str):
    with pytest.raises(ConfigurationError, match=f"^documents/.*: .*{message}|^documents/\\w+: {message}"):
        make(**changes)


def test_what_only_one_of_them_takes_is_checked_too():
    with pytest.raises(ConfigurationError, match=r"unicode_form='nfc' is none of 'NFC', 'NFD', 'NFKC', 'NFKD'"):
        poems(unicode_form="nfc")
    with pytest.raises(ConfigurationError, match=r"line_ends='crlf' is none of 'lf'"):
        poems(line_ends="crlf")
    with pytest.raises(ConfigurationError, match=r"deduplicate='yes' is neither True nor False"):
        poems(deduplicate="yes")
    with pytest.raises(ConfigurationError, match=r"on_error=None is none of 'error', 'skip'"):
        odd_poems(on_error=None)
    with pytest.raises(ConfigurationError, match=r"function='rules:keep' can't be called: give a function of a Doc"):
        odd_poems(function="rules:keep")
    with pytest.raises(FingerprintError, match="lambda"):
        odd_poems(function=lambda document: True).fingerprint()


def test_a_function_of_a_module_that_others_do_not_find_travels_by_value(tmp_path: Path):
    code = "def keep(document):\n    return document.text != 'red'\n"
    script = f"""
import pathlib, sys, types
from marin.experiment.cleaning import filtered
from marin.execution.sendable import dumped
module = sys.modules["loaded_by_hand"] = types.ModuleType("loaded_by_hand")
module.__file__ = "/nowhere/loaded_by_hand.py"
exec({code!r}, module.__dict__)
step = filtered("documents/red", source="a.jsonl", function=module.keep, version="dev")
pathlib.Path("call.pickle").write_bytes(dumped("red", function=step.run.function))
"""
    subprocess.run([sys.executable, "-c", script], cwd=tmp_path, check=True)
    read = "import pickle; print(pickle.load(open('call.pickle', 'rb'))['function'].function)"
    done = subprocess.run([sys.executable, "-c", read], cwd=tmp_path, check=True, capture_output=True, text=True)
    assert "function keep" in done.stdout
    assert dumped("odd", function=odd_poems().run.function)  # type: ignore[union-attr]


def test_from_files_to_tokens_each_step_reads_what_the_one_before_has_made(tmp_path: Path):
    given = [f"poem {number}" for number in (3, 1, 2, 1, 3, 5)]
    path = write_documents(tmp_path / "in/poems.jsonl", given)
    path.write_text(path.read_text() + json.dumps({"text": "poem 7", "url": "there"}) + "\n")
    once = normalized("documents/poems", source=path.parent, keep=["url"], version=VERSION)
    odd = filtered("documents/odd", raw=once, function=keep_odd, version=VERSION)
    loud = filtered("documents/loud", raw=odd, function=shout, version=VERSION)
    tokens = tokenized("tokenized/loud", raw=loud, tokenizer="bytes", version=VERSION)
    with temporary_store():
        cache = resolve(tokens)
        made = [load(each) for each in (once, odd, loud)]
        expected = [text.upper() for text in ("poem 3", "poem 1", "poem 5", "poem 7")]
        assert texts(Path(made[2].path)) == expected
        stream = TokenCache.open(cache.path, "train")
        decoded = [bytes(stream.document(k)[:-1].astype("uint8")).decode() for k in range(stream.num_documents)]
        assert decoded == expected
        assert [(each.documents_read, each.documents) for each in made] == [(7, 5), (5, 4), (4, 4)]
        assert made[2].columns == ("id", "text", "source", "url")
        assert (made[0].duplicates, made[1].dropped) == (2, {"even": 1})
        failing = filtered("documents/bad", raw=once, function=fails_on_seven, version=VERSION)
        with pytest.raises(RunError, match=r"DocumentFunctionError: document .* \(.*poems\.jsonl#7\): .* ZeroDivision"):
            resolve(failing)


@pytest.mark.parametrize("name", ["code", "code/*", "code/a.py"])
@pytest.mark.parametrize("make", [poems, odd_poems])
def test_of_source_code_it_is_said_how_each_file_becomes_a_document(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make: Any, name: str
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "code").mkdir()
    (tmp_path / "code/a.py").write_text("import this")
    written: list[dict[str, Any]] = [
        {"source": f"./{name}"},
        {"source": [name]},
        {"source": Path(name)},
        {"source": None, "paths": name},
        {"source": None, "paths": [name]},
        {"source": None, "raw": RAW, "glob": "*.py"},
    ]
    raw = at_path(Artifact(), f"{tmp_path}/code")
    for given in written:
        with pytest.raises((ConfigurationError, DataError), match=r": say file_format='text' if ") as told:
            input_files(config(make(**given), poems=raw).documents.source)
        assert "files(" not in str(told.value)
        assert len(input_files(config(make(**given, file_format="text"), poems=raw).documents.source)) == 1
    with pytest.raises((ConfigurationError, DataError), match=r": say files\(\.\.\., format='text'\) if "):
        input_files(config(make(source=files(name))).documents.source)
    assert len(input_files(config(make(source=files(name, format="text"))).documents.source)) == 1
    assert make(source=files(name)).fingerprint() == make(source=None, paths=name).fingerprint()


@pytest.mark.parametrize("builder", [normalized, filtered])
def test_every_name_of_a_signature_can_be_imported_from_where_the_builder_is(builder: Any):
    signature = " ".join(str(each) for each in builder.__annotations__.values())
    elsewhere = {"ArtifactStep", "Any", "Mapping", "Sequence", "None", "str", "int", "float", "bool"}
    named = set(re.findall(r"\w+", signature)) - elsewhere
    assert named <= set(marin.experiment.cleaning.__all__)
    assert getattr(marin.experiment.data, builder.__name__) is builder


def test_a_document_without_fields_has_an_empty_mapping():
    assert Document("i", "t", "s").fields == {}
