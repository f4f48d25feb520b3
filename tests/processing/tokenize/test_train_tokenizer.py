"""A vocabulary trained here: exact in size, the same each time, and lossless."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from marin.errors import BadRecordError, DataError
from marin.execution.artifact import at_path
from marin.execution.progress import Progress, progress_sink
from marin.processing.sources import FileSource
from marin.processing.tokenize.encoder import load_encoder
from marin.processing.tokenize.tokenizers import TokenizerSource, TrainTokenizerConfig
from marin.processing.tokenize.train_tokenizer import train_tokenizer
from tests.processing.tokenize.small import POEMS, stdlib_files, stdlib_source, write_poems


def config(output_path: Path, source: FileSource, **changes: Any) -> TrainTokenizerConfig:
    output_path.mkdir(exist_ok=True)
    given: dict[str, Any] = {"vocab_size": 500, **changes}
    return TrainTokenizerConfig(output_path=str(output_path), source=source, **given)


def test_the_vocabulary_has_exactly_the_size_asked_for_and_ends_documents_by_itself(tmp_path: Path):
    made = at_path(train_tokenizer(config(tmp_path / "out", stdlib_source(10))), str(tmp_path / "out"))
    made.verify()
    texts = [path.read_text() for path in stdlib_files(10)]
    assert (made.vocab_size, made.documents) == (500, len([text for text in texts if text]))
    assert made.text_bytes == sum(len(text.encode()) for text in texts)
    encoder = load_encoder(TokenizerSource(kind="file", location=made.path))
    assert encoder.identity.eos_token == "<|endoftext|>"
    assert encoder.identity.probe_sha256 == made.tokenizer.probe_sha256


def test_any_text_comes_back_also_one_unlike_the_training_data(tmp_path: Path):
    made = train_tokenizer(config(tmp_path / "out", stdlib_source(10)))
    encoder = load_encoder(TokenizerSource(kind="file", location=str(tmp_path / "out")))
    texts = [*POEMS, "".join(map(chr, range(0x250)))]
    ids, lengths = encoder.encode(texts)
    assert [encoder.decode(part) for part in np.split(ids, np.cumsum(lengths)[:-1])] == texts
    assert ids.max() < made.vocab_size


CHILD = """
import sys
from marin.processing.tokenize.train_tokenizer import train_tokenizer
from tests.processing.tokenize.small import stdlib_source
from tests.processing.tokenize.test_train_tokenizer import config
from pathlib import Path
train_tokenizer(config(Path(sys.argv[1]), stdlib_source(30), vocab_size=1000))
"""


def test_the_same_documents_give_the_same_file_in_any_process_with_any_number_of_threads(tmp_path: Path):
    vocabularies = set[bytes]()
    for threads in ("1", "2", "3"):
        environ = {**os.environ, "RAYON_NUM_THREADS": threads, "PYTHONHASHSEED": threads}
        root = Path(__file__).parents[3]
        subprocess.run([sys.executable, "-c", CHILD, str(tmp_path / threads)], check=True, env=environ, cwd=root)
        vocabularies.add((tmp_path / threads / "tokenizer.json").read_bytes())
    assert len(vocabularies) == 1


def test_held_out_documents_are_not_looked_at(tmp_path: Path):
    everything = train_tokenizer(config(tmp_path / "all", stdlib_source(30)))
    kept = train_tokenizer(config(tmp_path / "kept", stdlib_source(30), held_out=0.3))
    assert 0 < kept.documents < everything.documents


def test_too_little_text_for_the_vocabulary_is_an_error_that_says_how_far_it_goes(tmp_path: Path):
    path = write_poems(tmp_path / "poems.jsonl", ["ab ab"])
    with pytest.raises(DataError, match=r"poems\.jsonl has text for a vocabulary of 2\d\d, not 500: ask for a smaller"):
        train_tokenizer(config(tmp_path / "out", FileSource(paths=(str(path),))))


def test_a_fraction_that_takes_every_document_is_named(tmp_path: Path):
    path = write_poems(tmp_path / "poems.jsonl", ["x", "y"])
    with pytest.raises(DataError, match=r"poems\.jsonl: held_out=0\.999 takes all 2; make it smaller"):
        train_tokenizer(config(tmp_path / "out", FileSource(paths=(str(path),)), held_out=0.999))


def test_no_documents_and_bad_records_are_clear_errors(tmp_path: Path):
    path = write_poems(tmp_path / "poems.jsonl", [""])
    with pytest.raises(DataError, match=r"no documents to train a tokenizer on in .*poems\.jsonl"):
        train_tokenizer(config(tmp_path / "out", FileSource(paths=(str(path),))))
    path.write_text("{}\n")
    with pytest.raises(BadRecordError, match=r"poems\.jsonl, line 1, byte 0: missing key: expected a field 'text'"):
        train_tokenizer(config(tmp_path / "out", FileSource(paths=(str(path),))))


def test_another_file_at_its_place_is_noticed(tmp_path: Path):
    made = at_path(train_tokenizer(config(tmp_path / "out", stdlib_source(10))), str(tmp_path / "out"))
    Path(made.file).write_text("{}")
    with pytest.raises(DataError, match="is not the tokenizer that was made"):
        made.verify()
    Path(made.file).unlink()
    with pytest.raises(DataError, match=r"tokenizer\.json is missing"):
        made.verify()


def test_progress_is_told_while_the_library_reads(tmp_path: Path):
    seen: list[Progress] = []
    with progress_sink(seen.append):
        train_tokenizer(config(tmp_path / "out", stdlib_source(30), batch_bytes=50_000))
    assert len(seen) > 3
    assert (seen[-1].done, seen[-1].unit, seen[-1].note) == (seen[-1].total, "MB", "choosing the merges")
