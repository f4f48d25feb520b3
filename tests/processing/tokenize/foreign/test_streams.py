"""Every layout, as its own tool wrote it, passes the contract of token streams."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import pytest

from marin.processing.tokenize.build import tokenize
from marin.processing.tokenize.encoder import load_encoder
from marin.processing.tokenize.open_stream import open_stream
from marin.processing.tokenize.stream import TokenStream
from marin.processing.tokenize.tokenizers import parse_tokenizer
from tests.processing.tokenize.contract import TokenStreamContract
from tests.processing.tokenize.foreign.files import GOLDEN, documents_of, write_llmc, write_nanogpt
from tests.processing.tokenize.foreign.texts import TEXTS, ids
from tests.processing.tokenize.small import config, write_poems

WRITTEN_BY_THE_TOOL = ["megatron", "megatron-int32", "datatrove", "datatrove-masked", "arrow", "parquet"]


class TestGoldenStreams(TokenStreamContract):
    @pytest.fixture(params=[f"{name} {split}" for name in WRITTEN_BY_THE_TOOL for split in TEXTS])
    def case(self, request: pytest.FixtureRequest) -> list[str]:
        return request.param.split()

    @pytest.fixture
    def stream(self, case: list[str]) -> TokenStream:
        return open_stream(str(GOLDEN / case[0]), case[1])

    @pytest.fixture
    def documents(self, case: list[str]) -> list[list[int]]:
        return documents_of(case[0], case[1])

    @pytest.fixture
    def mask(self, case: list[str]) -> list[bool] | None:
        masked = case[0] == "datatrove-masked"
        return [position > 0 for text in TEXTS[case[1]] for position in range(len(ids(text)))] if masked else None


class TestFilesWithoutDocuments(TokenStreamContract):
    @pytest.fixture(params=["one file", "three files"])
    def parts(self, request: pytest.FixtureRequest) -> list[list[int]]:
        flat = [id_ for text in TEXTS["train"] for id_ in ids(text)]
        return [flat] if request.param == "one file" else [flat[:50], [], flat[50:]]

    @pytest.fixture(params=["nanogpt", "llmc uint16", "llmc uint32"])
    def stream(self, request: pytest.FixtureRequest, tmp_path: Path, parts: list[list[int]]) -> TokenStream:
        for number, part in enumerate(parts):
            file = tmp_path / f"fineweb_train_{number:06}.bin"
            if request.param == "nanogpt":
                write_nanogpt(file, part)
            else:
                write_llmc(file, part, wide=request.param.endswith("32"))
        return open_stream(str(tmp_path))

    @pytest.fixture
    def documents(self, parts: list[list[int]]) -> list[list[int]]:
        return [[id_ for part in parts for id_ in part]]


class TestMarinStream(TokenStreamContract):
    @pytest.fixture
    def stream(self, tmp_path: Path) -> TokenStream:
        tokenize(config(tmp_path / "out", write_poems(tmp_path / "poems.jsonl", TEXTS["train"])))
        return open_stream(str(tmp_path / "out"))

    @pytest.fixture
    def documents(self) -> list[list[int]]:
        return [ids(text) for text in TEXTS["train"]]


def test_the_tools_and_the_tokenizer_agree_on_the_golden_texts():
    encoder = load_encoder(parse_tokenizer(GOLDEN / "datatrove" / "tokenizer.json"))
    flat = open_stream(str(GOLDEN / "datatrove")).tokens(0, 147)
    assert encoder.decode(flat) == "".join(TEXTS["train"])


def test_files_of_more_than_2_to_the_31_tokens_are_read_without_reading_them(tmp_path: Path):
    size = 2_500_000_000
    with open(tmp_path / "train.bin", "wb") as file:  # sparse: it takes no room
        file.truncate(2 * size)
        file.seek(2 * (size - 2))
        file.write(np.array([7, 8], "<u2").tobytes())
    stream = open_stream(str(tmp_path))
    assert (stream.num_tokens, stream.num_documents) == (size, 1)
    assert stream.tokens(size - 3, 3).tolist() == [0, 7, 8]
    assert stream.document_ends(size - 3, 3).tolist() == [size]
    # The same file as three documents, the second of which ends behind 2^31.
    lengths = [1_000_000_000, 1_400_000_000, 100_000_000]
    starts = [0, 2_000_000_000, 4_800_000_000]
    index = struct.pack("<9sQBQQ", b"MMIDIDX", 1, 8, 3, 4) + struct.pack("<3i3q4q", *lengths, *starts, 0, 1, 2, 3)
    (tmp_path / "train.idx").write_bytes(index)
    stream = open_stream(str(tmp_path))
    assert stream.document_ends(0, size).tolist() == [1_000_000_000, 2_400_000_000, size]
    assert stream.document_ends(2_399_999_999, 1).tolist() == [2_400_000_000]
    assert stream.windows(np.array([size - 2]), 2).tolist() == [[7, 8]]
