"""Whether a training would be validated on text that it learns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from marin.errors import DataError
from marin.processing.mixture.faults import Faults
from marin.processing.tokenize.manifest import TRAIN
from marin.processing.tokenize.open_stream import OpenSplit

SAMPLED_DOCUMENTS = 512
"""The first so many documents of a validation are looked for. The first: of one source two caches are in one order."""

SHORTEST = 32
"""Shorter documents, in tokens, may be equal by chance, and are not looked for."""

SEARCHED_TOKENS = 100_000_000
"""So many of each data set are searched: the lengths of documents are compared first, so that takes little time."""

_COMPARED_TOKENS = 4096
_PIECE = 1 << 22


def check_overlap(trained_on: Sequence[OpenSplit], validation: Sequence[OpenSplit], faults: Faults) -> None:
    """Files with the same documents, wherever they lie; else a validation of which half the documents are trained on.

    Fewer are none of an author's making: large texts hold some documents twice.
    """
    where = {digest: reader.path for reader in trained_on for digest in reader.contents}
    others = list[OpenSplit]()
    for reader in validation:
        shared = [
            (file, where[digest])
            for digest, file in reader.contents.items()
            if digest in where and (reader.path, reader.split) != (where[digest], TRAIN)
        ]
        for file, path in shared:
            faults.add(
                DataError(
                    f"validation overlaps the training: what {file} of {reader.path} holds is also in "
                    f"{path}: validate on other text"
                )
            )
        if not shared:
            others.append(reader)
    _check_documents(trained_on, others, faults)


def _check_documents(trained_on: Sequence[OpenSplit], validation: Sequence[OpenSplit], faults: Faults) -> None:
    samples = [_sample(reader) for reader in validation]
    wanted = set[int]().union(*samples)
    lengths = np.unique([length for sample in samples for length in sample.values()])
    found = {reader.path: {key for key, _ in _documents(reader, lengths) if key in wanted} for reader in trained_on}
    for reader, sample in zip(validation, samples, strict=True):
        by_path = {path: len(sample.keys() & keys) for path, keys in found.items()}
        together = len(sample.keys() & set[int]().union(*found.values()))
        if sample and 2 * together >= len(sample):
            faults.add(
                DataError(
                    f"validation overlaps the training: of the first {len(sample)} documents of the {reader.split} "
                    f"split of {reader.path}, {together} are also in "
                    f"{', '.join(path for path, count in by_path.items() if count)}: validate on other text, such as "
                    "the validation split of that cache"
                )
            )


def _sample(reader: OpenSplit) -> dict[int, int]:
    """The first documents, by what they are, and how long each is."""
    sample = dict[int, int]()
    for key, length in _documents(reader, None):
        sample[key] = length
        if len(sample) == SAMPLED_DOCUMENTS:
            break
    return sample


def _documents(reader: OpenSplit, lengths: NDArray[np.int64] | None) -> Iterator[tuple[int, int]]:
    """A number for what each document holds, and its length: of those that have one of ``lengths``, if these are given.

    The number is another one in another process.
    """
    begin, stop = 0, min(reader.num_tokens, SEARCHED_TOKENS)
    for start in range(0, stop, _PIECE):
        ends = reader.document_ends(start, min(_PIECE, stop - start))
        if not len(ends):
            continue
        begins = np.concatenate([[begin], ends[:-1]])
        begin = int(ends[-1])
        sizes = ends - begins
        chosen = (sizes >= SHORTEST) if lengths is None else np.isin(sizes, lengths)
        for first, size in zip(begins[chosen].tolist(), sizes[chosen].tolist(), strict=True):
            head = reader.tokens(first, min(size, _COMPARED_TOKENS))
            yield hash((size, np.asarray(head, np.uint32).tobytes())), size
