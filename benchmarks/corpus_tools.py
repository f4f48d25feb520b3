"""How each tool makes a token cache of the corpus, and what is read off such a run."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import replace

from benchmarks import upstream
from benchmarks.harness.benchmark import PROGRAMS, is_here, program
from benchmarks.harness.command import BenchmarkError, Command, Sample
from benchmarks.harness.numbers import Figure, Measured

PEERS = ("datasets", "datatrove", upstream.UPSTREAM)
ENGINE = "engine"

SMALL, FULL = 1, 4
"""Sizes: a quarter of the corpus, which is enough for the worker processes, and all of it, each in four files."""

CORES = len(os.sched_getaffinity(0))

_LAYOUTS = {SMALL: "small", FULL: "even"}
_DIFFERENCE = {upstream.UPSTREAM: 1e-3}
"""How far the number of ids may be off, of tools that cut long documents into pieces before they encode them."""


_NOT_WAITED_FOR = ("datatrove",)
"""Tools that do not wait for their workers: the kernel does not count their processor time, so there is no figure."""


def seconds(measured: Measured, label: str, size: int) -> Figure:
    """The time of the whole command."""
    taken = measured.seconds(label, size)
    return replace(taken, cpu=None) if label in _NOT_WAITED_FOR else taken


def here() -> list[str]:
    """The peers that can be measured."""
    return [peer for peer in PEERS if why_not(peer) is None]


def why_not(peer: str) -> str | None:
    """Why ``peer`` can't be measured. ``None``: it can."""
    if peer == upstream.UPSTREAM:
        return upstream.why_not()
    return None if is_here(peer) else "it is not installed"


def marin(
    size: int, *, label: str = "marin", layout: str | None = None, action: str = "run", cores: int = CORES
) -> Command:
    """Our own program, on ``cores`` of the machine. ``layout``: other than that of the size."""
    folder = f"{{corpus}}/{layout or _LAYOUTS[size]}"
    argv = program("tokenize_marin.py", folder, "{tokenizer}", "{store}", action, cores)
    return Command(label=label, size=size, argv=argv)


def engine(size: int, *, workers: int = CORES, label: str = ENGINE) -> Command:
    """The engine that ours encodes with, on text in memory."""
    argv = program("tokenize_engine.py", f"{{corpus}}/{_LAYOUTS[size]}", "{tokenizer}", workers)
    return Command(label=label, size=size, argv=argv)


def peer(tool: str, size: int) -> Command:
    """``datasets`` and ``datatrove`` with a process for each core, upstream with the threads that it starts itself."""
    folder = f"{{corpus}}/{_LAYOUTS[size]}"
    if tool != upstream.UPSTREAM:
        return Command(
            label=tool, size=size, argv=program(f"tokenize_{tool}.py", folder, "{tokenizer}", "{store}", CORES)
        )
    argv = (str(upstream.FOLDER / "bin/python"), str(PROGRAMS / "tokenize_upstream.py"), folder, "{vocabulary}")
    return Command(label=tool, size=size, argv=argv, env={"MARIN_PREFIX": "{store}", "HF_HUB_OFFLINE": "1"})


def check_counts(measured: Measured, tools: Sequence[str], size: int) -> None:
    """Raise ``BenchmarkError`` unless every tool gave the documents and ids that the engine gave.

    Ids that a tool adds to each document are taken off first.
    """
    documents, tokens = _counts(measured, ENGINE, size)
    for tool in tools:
        found = _counts(measured, tool, size)
        if found[0] != documents or abs(found[1] - tokens) > _DIFFERENCE.get(tool, 0) * tokens:
            raise BenchmarkError(
                f"{tool}: {found[0]:,.0f} documents and {found[1]:,.0f} ids where the engine alone gives "
                f"{documents:,.0f} and {tokens:,.0f}: they do not do the same work"
            )


def _counts(measured: Measured, tool: str, size: int) -> tuple[float, float]:
    documents = measured.of(tool, size, lambda sample: sample.said["documents"], "documents")
    tokens = measured.of(tool, size, lambda sample: sample.said["tokens"] - sample.said["added"], "ids")
    return documents.median, tokens.median


def megabytes(measured: Measured, label: str, size: int) -> float:
    """The text of a run, in 10^6 bytes of UTF-8."""
    return measured.of(label, size, lambda sample: sample.said["text_bytes"], "bytes").median / 1e6


def beyond_start(label: str, seconds: Callable[[str, int], Figure], megabytes: float) -> Figure:
    """MB/s of what the whole corpus takes more than a quarter of it does; ``megabytes`` are the difference."""
    taken = seconds(label, FULL) - seconds(label, SMALL)
    if min(taken.median, taken.least) <= 0:
        raise BenchmarkError(
            f"{label}: all of the corpus took {taken} more than a quarter: the machine is too busy, or add --rounds"
        )
    return taken.rate(megabytes, "MB/s")


def engine_seconds(measured: Measured, label: str, size: int) -> Figure:
    """What the engine took to encode, without its start."""
    return measured.said(label, size, "engine")


def peak(measured: Measured, label: str, size: int) -> Figure:
    """The most memory of all rounds, of all processes together."""

    def taken(sample: Sample) -> float:
        if sample.peak_pss_mb is None:
            raise BenchmarkError(f"{label} {size}: nobody looked at its memory")
        return sample.peak_pss_mb

    return measured.worst(label, size, taken, "MB")
