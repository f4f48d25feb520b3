"""Caches leave as files that other tools read, whole or not at all."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from marin.errors import ConfigurationError, DataError
from marin.execution import OUT, apply, resolve
from marin.experiment.data import tokenized
from marin.processing.tokenize.build import tokenize
from marin.processing.tokenize.export_cache import ExportedCache, export_cache
from marin.processing.tokenize.open_stream import open_stream
from marin.processing.tokenize.tokenize import TokenizedCache
from marin.testing import temporary_store
from tests.processing.tokenize.foreign.files import GOLDEN, write_llmc, write_megatron
from tests.processing.tokenize.foreign.texts import TEXTS, ids
from tests.processing.tokenize.small import config, tree, vocabulary_file, write_poems


@pytest.fixture
def ours(tmp_path: Path) -> TokenizedCache:
    train, held_out = (write_poems(tmp_path / f"{split}.jsonl", texts) for split, texts in TEXTS.items())
    made = tokenize(config(tmp_path / "ours", train, validation=config(tmp_path, held_out).source))
    object.__setattr__(made, "path", str(tmp_path / "ours"))
    return made


def test_megatron_gets_the_files_that_its_own_builder_writes(ours: TokenizedCache, tmp_path: Path):
    exported = export_cache(ours, tmp_path / "out", layout="megatron")
    assert exported.files == ("train.bin", "train.idx", "validation.bin", "validation.idx")
    assert exported.tokens == {split: sum(len(ids(text)) for text in texts) for split, texts in TEXTS.items()}
    for suffix in ("bin", "idx"):
        theirs = GOLDEN / "megatron" / f"valid_text_document.{suffix}"
        assert (tmp_path / "out" / f"validation.{suffix}").read_bytes() == theirs.read_bytes()
    assert (tmp_path / "out/train.bin").read_bytes() == (GOLDEN / "megatron/train_text_document.bin").read_bytes()


def test_wide_ids_are_int32_for_megatron(tmp_path: Path):
    export_cache(str(GOLDEN / "arrow"), tmp_path / "out", layout="megatron")
    for suffix in ("bin", "idx"):
        theirs = GOLDEN / "megatron-int32" / f"valid_text_document.{suffix}"
        assert (tmp_path / "out" / f"validation.{suffix}").read_bytes() == theirs.read_bytes()


def test_nanogpt_gets_headerless_uint16_and_its_own_names(ours: TokenizedCache, tmp_path: Path):
    exported = export_cache(ours.path, tmp_path / "out", layout="nanogpt")
    assert (exported.path, exported.files) == (str(tmp_path / "out"), ("train.bin", "val.bin"))
    expected = {"train": "train.bin", "validation": "val.bin"}
    for split, name in expected.items():
        flat = [id_ for text in TEXTS[split] for id_ in ids(text)]
        assert np.fromfile(tmp_path / "out" / name, "<u2").tolist() == flat


@pytest.mark.parametrize("name", ["megatron", "datatrove", "datatrove-masked", "arrow", "parquet"])
def test_any_layout_leaves_and_comes_back_with_the_same_documents(tmp_path: Path, name: str):
    export_cache(GOLDEN / name, tmp_path / "out", layout="megatron")
    for split in TEXTS:
        one, other = (open_stream(str(path), split) for path in (GOLDEN / name, tmp_path / "out"))
        assert one.tokens(0, one.num_tokens).tolist() == other.tokens(0, other.num_tokens).tolist()
        assert one.document_ends(0, one.num_tokens).tolist() == other.document_ends(0, other.num_tokens).tolist()


def test_the_tokenizer_goes_with_them_so_that_they_can_be_adopted_again(tmp_path: Path):
    texts = write_poems(tmp_path / "poems.jsonl")
    made = tokenize(config(tmp_path / "ours", texts, tokenizer=vocabulary_file(tmp_path / "t")))
    export_cache(str(tmp_path / "ours"), tmp_path / "out", layout="nanogpt")
    back = TokenizedCache.from_source(str(tmp_path / "out"), {})
    assert back.tokenizer.agrees_with(made.tokenizer)
    assert back.splits["train"].tokens == made.splits["train"].tokens
    assert back.splits["train"].text_bytes == made.splits["train"].text_bytes


def test_ids_that_uint16_can_not_hold_leave_nothing_behind(tmp_path: Path):
    write_llmc(tmp_path / "wide.bin", [1, 65_536], wide=True)
    with pytest.raises(DataError, match=r"token id 65,536 does not fit into uint16, .* export to 'megatron'"):
        export_cache(tmp_path / "wide.bin", tmp_path / "out", layout="nanogpt")
    assert tree(tmp_path / "out") == {}
    export_cache(tmp_path / "wide.bin", tmp_path / "out", layout="megatron")


def test_files_that_are_there_are_not_overwritten(ours: TokenizedCache, tmp_path: Path):
    export_cache(ours, tmp_path / "out", layout="nanogpt")
    before = tree(tmp_path / "out")
    with pytest.raises(ConfigurationError, match=r"already holds train\.bin: give an empty folder, or remove"):
        export_cache(ours, tmp_path / "out", layout="megatron")
    assert tree(tmp_path / "out") == before


def test_what_a_killed_export_has_left_is_removed(ours: TokenizedCache, tmp_path: Path):
    (tmp_path / "out" / ".exporting").mkdir(parents=True)
    (tmp_path / "out" / ".exporting" / "train.bin").write_bytes(b"half")
    export_cache(ours, tmp_path / "out", layout="nanogpt")
    assert sorted(tree(tmp_path / "out")) == ["train.bin", "val.bin"]


def test_an_unknown_layout_lists_the_known_ones(ours: TokenizedCache, tmp_path: Path):
    with pytest.raises(ConfigurationError, match="layout='mds': give one of 'megatron', 'nanogpt'"):
        export_cache(ours, tmp_path / "out", layout="mds")  # type: ignore[arg-type]


def test_documents_that_end_with_a_piece_of_the_work_or_reach_over_several_are_whole(tmp_path: Path):
    piece = 1 << 20
    sequences = [[1] * piece, [2], [3] * (piece - 1), [4] * (2 * piece + 5), [5]]
    write_megatron(tmp_path / "a", sequences, range(6))
    export_cache(tmp_path / "a.bin", tmp_path / "out", layout="megatron")
    assert (tmp_path / "out" / "train.idx").read_bytes() == (tmp_path / "a.idx").read_bytes()
    assert (tmp_path / "out" / "train.bin").read_bytes() == (tmp_path / "a.bin").read_bytes()


def test_an_export_can_be_a_step(tmp_path: Path):
    texts = write_poems(tmp_path / "poems.jsonl")
    with temporary_store():
        tokens = tokenized("tokenized/poems", source=texts, tokenizer="bytes", version="2026.07.01")
        step = apply(
            "exports/poems",
            export_cache,
            artifact_type=ExportedCache,
            version="2026.07.01",
            source=tokens,
            target=OUT,
            layout="nanogpt",
        )
        made = resolve(step)
        assert (Path(made.path) / "train.bin").stat().st_size == 2 * made.tokens["train"]
