"""Which tokenize steps have their tokenizer loaded before anything else is imported."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from marin.processing.sources import files, hf
from marin.processing.tokenize.formats import ChatFormat
from marin.processing.tokenize.start import CREW_BYTES, will_want_crew
from marin.processing.tokenize.tokenize import TokenizeConfig
from tests.processing.tokenize.small import config, vocabulary_file


def sized(path: Path, size: int) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()
    os.truncate(path, size)  # nothing is read of it
    return path


def asked(root: Path, source: object) -> TokenizeConfig:
    return replace(config(root / "out", files(root), tokenizer=vocabulary_file(root)), source=source, workers=2)


@pytest.mark.parametrize(
    ("sizes", "wanted"),
    [
        ({"a.jsonl": CREW_BYTES}, True),
        ({"a.jsonl": CREW_BYTES - 1}, False),
        ({"a.jsonl": CREW_BYTES // 2, "deeper/b.jsonl": CREW_BYTES // 2}, True),
        ({"a.jsonl.gz": CREW_BYTES}, False),
        ({"a.jsonl.gz": CREW_BYTES // 2, "b.jsonl.gz": CREW_BYTES // 2}, True),
        ({}, False),
    ],
)
def test_large_input_that_workers_can_share_wants_them(tmp_path: Path, sizes: dict[str, int], wanted: bool):
    (folder := tmp_path / "data").mkdir()
    for name, size in sizes.items():
        sized(folder / name, size)
    assert will_want_crew(asked(tmp_path, files(folder))) is wanted
    assert will_want_crew(asked(tmp_path, files(folder / "**/*.*"))) is wanted


def test_what_the_fast_engine_or_several_workers_can_not_do_wants_none(tmp_path: Path):
    large = asked(tmp_path, files(sized(tmp_path / "data/a.jsonl", CREW_BYTES)))
    assert will_want_crew(large)
    for changed in (
        replace(large, workers=1),
        replace(large, sample_count=10),
        replace(large, format=ChatFormat()),
        replace(large, source=hf("org/poems")),
        replace(large, source=files("https://example.org/a.jsonl")),
        replace(large, source=files(tmp_path / "nothing/*.jsonl")),
        replace(large, tokenizer=replace(large.tokenizer, location=str(tmp_path / "none.json"))),
        replace(large, tokenizer=replace(large.tokenizer, kind="hub")),
    ):
        assert not will_want_crew(changed)


def test_it_imports_nothing_heavy_before():
    code = "import sys, marin.processing.tokenize.start; print(*{'numpy', 'pyarrow', 'tokenizers'} & set(sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "\n"
