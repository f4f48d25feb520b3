"""The benchmarks of the data side: the corpus is the same each time, and every row can be made."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks import corpus_tools, data, reading, skew, tokenizing, upstream
from benchmarks.corpus import KINDS, Document, assemble, evenly, mixed, write_layouts
from benchmarks.corpus_text import LONGEST, SHORTEST, texts_of
from benchmarks.corpus_tools import FULL, SMALL
from benchmarks.harness.benchmark import program
from benchmarks.harness.command import BenchmarkError, Command, Sample, Workplace
from benchmarks.harness.numbers import Figure, Measured
from benchmarks.harness.rows import at_least, at_least_times

ROOT = Path(__file__).parents[2]
KIND = KINDS["documentation"]
LONG = "A sentence of a document that is long enough. " * 10


def document(index, size):
    return Document(source="package", path=f"/{index}", text="x" * size)


@given(st.lists(st.integers(1, 50), min_size=1, max_size=30), st.lists(st.integers(1, 9), min_size=1, max_size=6))
def test_documents_are_dealt_out_whole_and_keep_their_order(sizes, shares):
    documents = [document(index, size) for index, size in enumerate(sizes)]
    files = evenly(documents, shares)
    assert Counter(each for file in files for each in file) == Counter(documents)
    assert all([*file] == sorted(file, key=documents.index) for file in files)


@given(st.integers(1, 400))
def test_kinds_have_their_shares_at_any_point(size):
    supply = {kind: [document(f"{kind}{index}", 1) for index in range(400)] for kind in "ab"}
    chosen = Counter(kind for kind, _ in mixed(supply, {"a": 0.75, "b": 0.25}, size))
    assert chosen.total() == size
    assert abs(chosen["a"] - 0.75 * size) <= 1


def test_a_kind_that_runs_out_leaves_its_share_to_the_others():
    supply = {"a": [document("a", 1)], "b": [document(index, 1) for index in range(9)]}
    assert [kind for kind, _ in mixed(supply, {"a": 0.5, "b": 0.5}, 9)].count("b") == 8


def test_every_layout_holds_the_same_documents_and_the_small_one_a_quarter(tmp_path):
    documents = [document(index, 100) for index in range(200)]
    write_layouts(tmp_path, documents)

    def sizes(layout):
        return [len(file.read_text().splitlines()) for file in sorted((tmp_path / layout).iterdir())]

    assert sizes("single") == [200]
    assert sizes("even") == [50] * 4
    assert sizes("skewed") == [120, *[4] * 20]
    assert sum(sizes("small")) == 50
    lines = (tmp_path / "single" / "part-00.jsonl").read_text().splitlines()
    assert json.loads(lines[7]) == {"id": documents[7].id, "source": "package", "path": "/7", "text": "x" * 100}


def test_the_same_files_give_the_same_corpus_and_another_size_another(tmp_path, monkeypatch):
    (files := tmp_path / "files").mkdir()
    for index in range(40):
        (files / f"{index}.txt").write_text(f"{index} {LONG}")
    kinds = {"documentation": replace(KIND, folders=(str(files),))}
    monkeypatch.setattr("benchmarks.corpus.KINDS", kinds)
    first = assemble(tmp_path / "a", 0.005, download=False).read_text()
    assert assemble(tmp_path / "b", 0.005, download=False).read_text() == first
    assert json.loads(assemble(tmp_path / "b", 0.01, download=False).read_text())["text_bytes"] > 9_000


def test_a_corpus_that_falls_short_is_an_error_that_says_what_to_do(tmp_path, monkeypatch):
    monkeypatch.setattr("benchmarks.corpus.KINDS", {"documentation": replace(KIND, folders=(str(tmp_path / "none"),))})
    with pytest.raises(
        BenchmarkError, match=r"0\.0 MB of text where 3 were asked for: run apt-get update .*--megabytes"
    ):
        assemble(tmp_path / "corpus", 3, download=False)


@pytest.mark.parametrize(
    ("path", "data", "expected"),
    [
        ("/usr/share/doc/a.txt.gz", gzip.compress(LONG.encode(), mtime=0), [LONG]),
        ("/usr/share/doc/a.html", f"<p>{LONG}<script>1</script>&lt;b&gt;</p>".encode(), [f"{LONG}<b>"]),
        ("/usr/share/man/de/man1/ls.1", f'.\\" by hand\n.SH NAME\n{LONG}\\fBfett\\fP'.encode(), [f"NAME\n{LONG}fett"]),
        ("/usr/share/doc/a.txt", b"short", []),
        ("/usr/share/doc/a.txt", LONG.encode() + b"\0", []),
        ("/usr/share/doc/a.txt", LONG.encode("utf-16"), []),
        ("/usr/share/doc/a.png", LONG.encode(), []),
        ("/usr/share/doc/a.txt.gz", b"no archive" * 100, []),
        ("/usr/share/doc/a.py", LONG.encode(), []),
    ],
)
def test_files_give_their_text_and_what_is_no_text_gives_none(path, data, expected):
    assert [*texts_of(path, data, code=False)] == expected


def test_sources_are_the_texts_of_code_only():
    assert [*texts_of("/a.py", LONG.encode(), code=True)] == [LONG]
    assert [*texts_of("/a.txt", LONG.encode(), code=True)] == []


@given(st.integers(0, 4 * LONGEST), st.booleans())
def test_a_long_text_is_cut_into_pieces_that_make_it_whole(size, paragraphs):
    text = (("word " * 100 + "\n\n") * (size // 500 + 1) if paragraphs else "x" * size)[:size]
    pieces = [*texts_of("/a.txt", text.encode(), code=False)]
    assert all(SHORTEST <= len(piece) <= LONGEST for piece in pieces)
    whole = "".join(pieces)
    assert text.startswith(whole)
    assert len(text) - len(whole) < SHORTEST


def test_a_rate_is_of_the_fastest_round_where_the_time_is_the_least():
    rate = Figure(median=2.0, least=0.5, unit="s", cpu=4.0).rate(100, "MB/s")
    assert (rate.median, rate.least, rate.cpu, rate.unit) == (50, 200, 25, "MB/s")


def test_a_claim_of_a_rate_holds_from_its_limit_on():
    fast, slow = (Figure(median=value, least=value, unit="MB/s") for value in (20.0, 2.0))
    assert at_least("it", fast, 20).held
    assert not at_least("it", slow, 20).held
    assert at_least_times("it", fast, "other", slow, 10).held
    assert not at_least_times("it", fast, "other", slow, 10.1).held
    with pytest.raises(BenchmarkError, match="is no ratio"):
        at_least_times("it", fast, "other", Figure(median=0, least=0, unit="MB/s"), 10)


def test_memory_that_processes_share_counts_once_and_their_own_is_added_up(tmp_path):
    megabytes = 40
    child = f"import signal; own = b'x' * {megabytes}_000_000; print(flush=True); signal.pause()"
    code = f"""
import os, signal, subprocess, sys, time
shared = bytearray(os.urandom(1_000_000)) * {megabytes}
children = []
while len(children) < 2:
    children.append(os.fork())
    if children[-1] == 0:
        signal.pause()
reader, writer = os.pipe()
own = subprocess.Popen([sys.executable, "-c", {child!r}], stdout=writer)
os.read(reader, 1)
time.sleep(4)  # so long there is something to see
for child in (*children, own.pid):
    os.kill(child, signal.SIGKILL)
"""
    command = Command(label="tree", size=1, argv=(sys.executable, "-c", code), watched=True)
    peak = Workplace(tmp_path, {}).measure(command).peak_pss_mb
    assert peak is not None
    assert 2 * megabytes < peak < 3 * megabytes


def test_nobody_looks_at_memory_that_is_not_asked_for(tmp_path):
    assert Workplace(tmp_path, {}).measure(Command(label="it", size=1, argv=("true",))).peak_pss_mb is None


def test_a_command_names_the_places_that_its_workplace_knows(tmp_path):
    workplace = Workplace(tmp_path / "work", {}, {"corpus": tmp_path / "corpus"})
    workplace.measure(Command(label="it", size=1, argv=("test", "{corpus}/even", "=", f"{tmp_path}/corpus/even")))


SAID = {
    "plan": 0.002,
    "plan_cpu": 0.002,
    "documents": 10.0,
    "tokens": 110.0,
    "added": 10.0,
    "read": 1.0,
    "read_cpu": 1.0,
    "windows": 64e4,
}


def sample(command, **said):
    scale = {"text_bytes": 5e6 * command.size, "encoding": 0.2 * command.size}
    scale |= {"engine": 0.1 * command.size, "engine_cpu": 0.1 * command.size}
    return Sample(
        seconds=1.0 + command.size,
        cpu_seconds=1.0 + 2 * command.size,
        max_rss_mb=50,
        said={**SAID, **scale, "engine_and_load": 1 + 0.1 * command.size, **said},
        peak_pss_mb=500 if command.watched else None,
    )


def measured(benchmark):
    return Measured({(command.label, command.size): [sample(command)] for command in benchmark.commands()})


@pytest.fixture
def peers(request, monkeypatch):
    monkeypatch.setattr(corpus_tools, "is_here", lambda module: request.param)
    monkeypatch.setattr(reading, "is_here", lambda module: request.param)
    monkeypatch.setattr(upstream, "why_not", lambda: None if request.param else "it is not installed")
    return request.param


@pytest.mark.parametrize("name", data.BENCHMARKS)
@pytest.mark.parametrize("peers", [True, False], indirect=True, ids=["beside all peers", "alone"])
def test_every_row_can_be_made_from_what_its_commands_give(name, peers):
    benchmark = data.BENCHMARKS[name]
    rows = benchmark.rows(measured(benchmark))
    assert any(row.held is not None for row in rows) or name == "scaling"
    assert any("not measured here" in row.note for row in rows) is (
        not peers and name in ("tokenizing", "tokenizing_memory", "reading")
    )


@pytest.mark.parametrize("peers", [True], indirect=True)
def test_a_tool_that_does_not_wait_for_its_workers_has_no_processor_time(peers):
    rows = [row for row in tokenizing.rows(measured(tokenizing.BENCHMARK)) if row.peer == "datatrove"]
    assert [row.ratio_of_cpu for row in rows] == [None, None]
    assert all(row.ratio for row in rows)


@pytest.mark.parametrize("peers", [True], indirect=True)
def test_tools_that_give_other_ids_are_not_compared(peers):
    found = measured(tokenizing.BENCHMARK)
    commands = {(command.label, command.size): command for command in tokenizing.BENCHMARK.commands()}

    def with_tokens(tool, tokens):
        key = (tool, FULL)
        return Measured({**found.samples, key: [sample(commands[key], tokens=tokens)]})

    tokenizing.rows(found)
    with pytest.raises(
        BenchmarkError, match="datatrove: 10 documents and 101 ids where the engine alone gives 10 and 100"
    ):
        tokenizing.rows(with_tokens("datatrove", 111.0))
    # Upstream cuts long documents: a thousandth more is what that gives.
    tokenizing.rows(with_tokens("upstream", 110.05))
    with pytest.raises(BenchmarkError, match=r"upstream: .* do not do the same work"):
        tokenizing.rows(with_tokens("upstream", 111.0))


def test_processors_at_work_are_counted_beyond_the_start():
    found = {row.what: row for row in skew.rows(measured(skew.BENCHMARK))}
    row = found["one file: processors at work, beyond the start"]
    assert row.ours is not None
    assert row.ours.median == 2  # a second of start with one processor, then two seconds of them for each one


@pytest.fixture
def tiny_corpus(tmp_path):
    """A corpus of a few windows, and the vocabulary of bytes."""
    for layout in ("small", "even"):
        (folder := tmp_path / "corpus" / layout).mkdir(parents=True)
        for part in range(4):
            lines = [json.dumps({"id": f"{part}-{index}", "text": f"{index} {LONG}"}) + "\n" for index in range(60)]
            (folder / f"part-{part:02d}.jsonl").write_text("".join(lines))
    vocabulary = tmp_path / "vocabulary"
    vocabulary.mkdir()
    tokens = {chr(byte): byte for byte in range(32, 127)} | {"<|end_of_text|>": 0}
    model = {"type": "BPE", "vocab": tokens, "merges": []}
    added = {"id": 0, "content": "<|end_of_text|>", "single_word": False, "lstrip": False, "rstrip": False}
    whole = {"version": "1.0", "model": model, "added_tokens": [{**added, "normalized": False, "special": True}]}
    (vocabulary / "tokenizer.json").write_text(json.dumps(whole))
    return {"corpus": tmp_path / "corpus", "tokenizer": vocabulary / "tokenizer.json", "vocabulary": vocabulary}


def test_our_programs_make_a_cache_plan_it_and_read_it(tiny_corpus, tmp_path):
    workplace = Workplace(tmp_path / "work", {}, tiny_corpus)
    said = workplace.measure(corpus_tools.marin(SMALL)).said
    assert said["documents"] == said["added"] == 240
    assert said["text_bytes"] == said["tokens"] - said["added"]
    plan = data.BENCHMARKS["cached_corpus"].commands()[0]
    assert workplace.measure(plan).said["plan"] > 0


def test_the_command_line_names_every_benchmark():
    helped = subprocess.run(
        [sys.executable, "-m", "benchmarks.data", "--help"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert all(name in helped.stdout for name in data.BENCHMARKS)


def test_every_program_of_a_command_is_there():
    for benchmark in data.BENCHMARKS.values():
        for command in benchmark.commands():
            assert Path(command.argv[1]).is_file(), command.argv
    assert Path(program("read_grain.py")[1]).is_file()


def test_the_page_has_a_place_for_the_table():
    assert data.PAGE.read_text(encoding="utf-8").count(data.BEGIN) == 1
