"""What the trainer relies on in any token stream, whoever wrote the files."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from marin.processing.tokenize.stream import TokenStream


class TokenStreamContract:
    """A subclass gives ``stream`` and the ``documents`` that are in it, none of them empty, at least 8 tokens in all.

    ``mask``: which tokens are learned, or None if the files do not say. Streams of files that do not say where
    documents are have one document.
    """

    @pytest.fixture
    def mask(self) -> list[bool] | None:
        return None

    @pytest.fixture
    def flat(self, documents: list[list[int]]) -> list[int]:
        return [id_ for document in documents for id_ in document]

    @pytest.fixture
    def ends(self, documents: list[list[int]]) -> list[int]:
        return np.cumsum([len(document) for document in documents]).tolist()

    def test_the_stream_is_the_documents_one_after_the_other(
        self, stream: TokenStream, documents: list[list[int]], flat: list[int], ends: list[int]
    ):
        assert stream.num_tokens == len(flat)
        assert stream.num_documents >= len(documents)
        assert stream.tokens(0, len(flat)).tolist() == flat
        assert stream.document_ends(0, len(flat)).tolist() == ends

    def test_ids_are_unsigned(self, stream: TokenStream):
        assert stream.dtype in (np.dtype(np.uint16), np.dtype(np.uint32))
        assert stream.tokens(0, 3).dtype == stream.dtype == stream.windows(np.array([0]), 3).dtype

    def test_any_span_is_a_slice_of_the_stream(self, stream: TokenStream, flat: list[int], ends: list[int]):
        for start in [*range(12), *ends, *(end - 1 for end in ends), len(flat) // 2]:
            for stop in {start, start + 1, start + 5, *ends, len(flat)}:
                if start <= stop <= len(flat):
                    count = stop - start
                    assert stream.tokens(start, count).tolist() == flat[start:stop], (start, stop)
                    inside = [end for end in ends if start < end <= stop]
                    assert stream.document_ends(start, count).tolist() == inside, (start, stop)
                    assert stream.document_ends(start, count).dtype == np.int64

    def test_what_lies_outside_is_refused(self, stream: TokenStream):
        size = stream.num_tokens
        for start, count in [(-1, 2), (size - 1, 2), (0, size + 1), (0, -1), (size + 1, 0)]:
            for read in (stream.tokens, stream.document_ends):
                with pytest.raises(IndexError, match=str(size)):
                    read(start, count)

    def test_windows_are_a_new_array_in_the_order_asked_for(self, stream: TokenStream, flat: list[int]):
        starts = [len(flat) - 7, 0, 3, len(flat) // 2 - 3, 3]
        windows = stream.windows(np.array(starts), 7)
        assert windows.tolist() == [flat[start : start + 7] for start in starts]
        windows[:] = 0
        assert stream.tokens(0, len(flat)).tolist() == flat
        assert stream.windows(np.array([], np.int64), 7).shape == (0, 7)

    def test_tokens_can_not_be_written_to(self, stream: TokenStream):
        for count in (1, stream.num_tokens):
            with pytest.raises(ValueError, match="read-only"):
                stream.tokens(0, count)[0] = 1

    def test_the_mask_has_one_entry_per_token(self, stream: TokenStream, mask: list[bool] | None):
        for start, stop in [(0, stream.num_tokens), (1, 6), (stream.num_tokens - 1, stream.num_tokens), (3, 3)]:
            found = stream.loss_mask(start, stop - start)
            if mask is None:
                assert found is None
            else:
                assert found is not None
                assert (found.tolist(), found.dtype) == (mask[start:stop], np.bool_)

    def test_threads_may_read_at_once(self, stream: TokenStream, flat: list[int], ends: list[int]):
        def read(start: int) -> tuple[list[int], list[int]]:
            return stream.tokens(start, 5).tolist(), stream.document_ends(start, 5).tolist()

        starts = list(range(len(flat) - 5)) * 3
        with ThreadPoolExecutor(4) as pool:
            found = list(pool.map(read, starts))
        assert found == [(flat[at : at + 5], [end for end in ends if at < end <= at + 5]) for at in starts]
