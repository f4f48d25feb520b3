"""What is written is read, whatever the documents: Megatron's index is the one that takes thought."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from marin.processing.tokenize.foreign.flat import FlatStream, MappedChunk, SortedEnds
from marin.processing.tokenize.foreign.megatron import MegatronLayout
from tests.processing.tokenize.foreign.files import write_megatron

Sequences = list[list[int]]

DOCUMENTS = st.lists(st.lists(st.lists(st.integers(0, 255), max_size=4), max_size=3), max_size=6)
"""Documents of sequences of ids; all three may be empty."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("laws")


@settings(deadline=None, max_examples=150)
@given(documents=DOCUMENTS, code=st.sampled_from([1, 4, 5, 8]), data=st.data())
def test_documents_of_several_sequences_are_found_in_any_span(
    folder: Path, documents: list[Sequences], code: int, data: st.DataObject
):
    sequences = [sequence for document in documents for sequence in document]
    bounds = np.cumsum([0, *(len(document) for document in documents)]).tolist()
    write_megatron(folder / "a", sequences, bounds, code=code)
    flat = [id_ for sequence in sequences for id_ in sequence]
    ends = np.cumsum([sum(map(len, document)) for document in documents], dtype=np.int64).tolist()
    # Megatron's own writer lists at least one document; without any, each sequence is one.
    stream = FlatStream("a", "train", MegatronLayout().open([str(folder / "a.bin")]))
    stream.check()
    assert (stream.num_tokens, stream.tokens(0, len(flat)).tolist()) == (len(flat), flat)
    start = data.draw(st.integers(0, len(flat)))
    stop = data.draw(st.integers(start, len(flat)))
    expected = sorted({end for end in ends if start < end <= stop})
    assert stream.document_ends(start, stop - start).tolist() == expected


@settings(deadline=None, max_examples=150)
@given(
    chunks=st.lists(st.lists(st.lists(st.integers(0, 9), max_size=3), max_size=4), max_size=5),
    wide=st.lists(st.booleans(), min_size=5, max_size=5),
    data=st.data(),
)
def test_chunks_of_any_sizes_and_types_are_one_stream(chunks: list[Sequences], wide: list[bool], data: st.DataObject):
    made = [_chunk(chunk, np.int32 if wider else np.uint16) for chunk, wider in zip(chunks, wide, strict=False)]
    stream = FlatStream("a", "train", made)
    documents = [document for chunk in chunks for document in chunk]
    flat = [id_ for document in documents for id_ in document]
    ends = np.cumsum([len(document) for document in documents], dtype=np.int64).tolist()
    start = data.draw(st.integers(0, len(flat)))
    stop = data.draw(st.integers(start, len(flat)))
    stream.check()
    assert stream.num_documents == len(documents)
    assert stream.tokens(start, stop - start).tolist() == flat[start:stop]
    assert stream.document_ends(start, stop - start).tolist() == sorted({end for end in ends if start < end <= stop})


def _chunk(documents: Sequences, dtype: type[np.integer]) -> MappedChunk:
    flat = [id_ for document in documents for id_ in document]
    ends = np.cumsum([len(document) for document in documents], dtype=np.int64) + 5
    return MappedChunk(np.array(flat, dtype), SortedEnds(ends, "a chunk", 5))
