"""Find equal documents of different parts, in the memory of one bucket of digests.

Each part has written the digests of its documents in sorted runs. A bucket is a range of digests: it has all documents
that could be equal to one another. Of those that are, the first in reading order stays.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec
import numpy as np
import numpy.typing as npt

from marin.processing.cleaning.manifest import PartRecord
from marin.processing.cleaning.sorted_runs import Rows, read_range, run_bytes
from marin.processing.durable import whole_file, write_whole
from marin.storage.faults import translated_faults

RUN_DOCUMENTS = 1 << 18
"""Documents of one run. Within a run equal documents are found at once, from the set of its digests."""

BUCKET_DOCUMENTS = 1 << 21
"""About so many digests are compared at once: some 200 MB while they are sorted."""

_DIGESTS, _DUPLICATES = 3, 2
"""Columns: both halves of a digest and a row of a shard; a part and a row of its shard."""


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """All digests that are compared. ``name`` is a digest of them: other digests have other duplicates.

    A bucket is the digests whose first half is in one of ``buckets`` equal ranges.
    """

    root: str
    name: str
    buckets: int

    @classmethod
    def of(cls, root: str, records: Sequence[PartRecord]) -> Comparison:
        """Of the parts, in reading order, whose digests lie in ``root``."""
        buckets = max(1, -(-sum(sum(record.runs) for record in records) // BUCKET_DOCUMENTS))
        facts = [str(buckets), *(f"{record.part} {record.runs_sha256}" for record in records)]
        name = hashlib.sha256("\n".join(facts).encode()).hexdigest()[:16]
        made = cls(root=root, name=name, buckets=buckets)
        # In a file, as each of many tasks would take it along.
        write_whole(made.runs_file, msgspec.json.encode([(record.part, record.runs) for record in records]))
        return made

    @property
    def runs_file(self) -> str:
        """Where the lengths of the runs of each part are listed."""
        return os.path.join(self.root, f"runs-{self.name}.json")

    def duplicates_file(self, bucket: int) -> str:
        """Where it is written down which documents of a bucket are equal to earlier ones."""
        return os.path.join(self.root, f"duplicates-{self.name}-{bucket:05d}.bin")


def digests_file(root: str, part: int) -> str:
    """Where the digests of a part lie."""
    return os.path.join(root, f"digests-{part:05d}.bin")


def digest_run(digests: Sequence[bytes], first_row: int) -> bytes:
    """The digests of consecutive rows of a shard as a sorted run."""
    halves = np.frombuffer(b"".join(digests), ">u8").reshape(-1, 2).astype(np.uint64)
    order = np.lexsort((halves[:, 1], halves[:, 0]))
    return run_bytes(np.stack([halves[order, 0], halves[order, 1], (order + first_row).astype(np.uint64)]))


def digests_bytes(runs: Sequence[int]) -> int:
    """The size of a file of digests whose runs have these lengths."""
    return 8 * _DIGESTS * sum(runs)


def find_duplicates(comparison: Comparison, bucket: int) -> int:
    """Write down which documents of a bucket are equal to an earlier one, and return how many. Once is enough."""
    path = comparison.duplicates_file(bucket)
    if os.path.exists(path):
        return _length(path)
    found = _later_ones(comparison, bucket)
    with translated_faults(path, writing=True), whole_file(path) as scratch, open(scratch, "wb") as stream:
        stream.write(run_bytes(found))
    return found.shape[1]


def duplicates_of(comparison: Comparison, part: int) -> npt.NDArray[np.int64]:
    """The rows of the shard of ``part`` that are equal to earlier documents, sorted. Every bucket has been searched."""
    paths = [comparison.duplicates_file(bucket) for bucket in range(comparison.buckets)]
    rows = [run[1] for path in paths for run in read_range(path, [_length(path)], _DUPLICATES, part, part)]
    return np.sort(np.concatenate(rows)).astype(np.int64) if rows else np.zeros(0, np.int64)


def _length(path: str) -> int:
    return os.path.getsize(path) // (8 * _DUPLICATES)


def _later_ones(comparison: Comparison, bucket: int) -> Rows:
    first, last = ((bucket << 64) // comparison.buckets, ((bucket + 1) << 64) // comparison.buckets - 1)
    with open(comparison.runs_file, "rb") as stream:
        lengths = msgspec.json.decode(stream.read(), type=list[tuple[int, list[int]]])
    runs, parts = list[Rows](), list[Rows]()
    for part, each in lengths:
        for run in read_range(digests_file(comparison.root, part), each, _DIGESTS, first, last):
            runs.append(run)
            parts.append(np.full(run.shape[1], part, np.uint64))
    if not runs:
        return np.zeros((_DUPLICATES, 0), np.uint64)
    (high, low, row), part = np.concatenate(runs, axis=1), np.concatenate(parts)
    # Stable, and runs come in reading order: of equal digests the first document is the first one.
    order = np.lexsort((low, high))
    high, low = high[order], low[order]
    later = order[1:][(high[1:] == high[:-1]) & (low[1:] == low[:-1])]
    found = np.stack([part[later], row[later]])
    return found[:, np.lexsort((found[1], found[0]))]
