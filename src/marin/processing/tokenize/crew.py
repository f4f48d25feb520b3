"""Worker processes that tokenize parts side by side.

The processes are forked from one that has loaded the tokenizer already, and that runs nothing else: a vocabulary of a
hundred thousand ids takes a second to load, and is in memory once.
"""

from __future__ import annotations

import concurrent.futures
import concurrent.futures.process
import contextlib
import multiprocessing
import os
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from marin.errors import DataError
from marin.execution.progress import report
from marin.processing.tokenize import preloaded
from marin.processing.tokenize.chat import ChatEncoder
from marin.processing.tokenize.engines import Engine, FlatIds, ReferenceEngine
from marin.processing.tokenize.gate import encoded_probe
from marin.processing.tokenize.manifest import PartRecord
from marin.processing.tokenize.parts import Part
from marin.processing.tokenize.server import start_server
from marin.processing.tokenize.work import Job, make_part

_LOOK_SECONDS = 0.2


class Progress:
    """Input bytes done of ``total``, and the tokens made of them."""

    def __init__(self, total: int) -> None:
        self._total, self._done, self._tokens = total, 0, 0

    def tell(self, read: int = 0, tokens: int = 0) -> None:
        """``read`` and ``tokens`` of parts that are not finished."""
        done, made = min(self._done + read, self._total), self._tokens + tokens
        report(done / 1e6, self._total / 1e6, "MB", f"{made / 1e6:.1f}M tokens")

    def end(self, part: Part, record: PartRecord) -> None:
        self._done += part.size
        self._tokens += sum(shard.tokens for shard in record.shards)
        self.tell()


@dataclass(frozen=True, kw_only=True)
class EngineChoice:
    """Which engine a worker loads, from which file."""

    tokenizer_file: str | None
    is_fast: bool
    parse_special: bool

    def load(self) -> Engine:
        return preloaded.load(self.tokenizer_file, is_fast=self.is_fast, parse_special=self.parse_special)


@dataclass(frozen=True, kw_only=True)
class Probed:
    """The ids of the probe set, or why the engine does not do this tokenizer."""

    ids: FlatIds
    refusal: str | None


def probe(engine: Engine, sample: Sequence[str], special: Sequence[str]) -> Probed:
    """How ``engine`` does on the probe set."""
    refusal = engine.why if isinstance(engine, ReferenceEngine) else None
    empty = np.zeros(0, np.uint32), np.zeros(0, np.int64)
    return Probed(ids=empty if refusal else encoded_probe(engine, sample, special), refusal=refusal)


class Crew:
    """The workers of one step. Use as a context manager: leaving it ends them."""

    def __init__(self, choice: EngineChoice, workers: int) -> None:
        context = multiprocessing.get_context("forkserver")
        start_server(choice.tokenizer_file if choice.is_fast else None, parse_special=choice.parse_special)
        self._counters = context.Array("q", 2 * workers)
        self._next = context.Value("q", 0)
        self._pool = concurrent.futures.ProcessPoolExecutor(
            workers, mp_context=context, initializer=_begin, initargs=(choice, self._counters, self._next)
        )
        self._workers = workers

    def __enter__(self) -> Crew:
        return self

    def __exit__(self, *fault: object) -> None:
        if fault[0] is not None:
            _end_processes(self._pool)
        self._pool.shutdown(wait=True, cancel_futures=True)

    def probe(self, sample: Sequence[str], special: Sequence[str]) -> concurrent.futures.Future[Probed]:
        """How the engine of a worker does on the probe set."""
        return self._pool.submit(_probe, sample, special)

    def engine_name(self) -> str:
        """The engine that the workers have."""
        return self._pool.submit(_engine_name).result()

    def make(self, job: Job, parts: Sequence[Part], progress: Progress) -> list[PartRecord]:
        """The records of ``parts``, in their order; the largest are begun first."""
        found: dict[int, PartRecord] = {}
        try:
            futures = {self._pool.submit(_make, job, part): part for part in sorted(parts, key=lambda part: -part.size)}
            waiting = set(futures)
            while waiting:
                done, waiting = concurrent.futures.wait(waiting, _LOOK_SECONDS, concurrent.futures.FIRST_COMPLETED)
                for future in done:
                    part = futures[future]
                    found[part.number] = future.result()
                    progress.end(part, found[part.number])
                counted = self._counters[:]
                progress.tell(sum(counted[::2]), sum(counted[1::2]))
        except concurrent.futures.process.BrokenProcessPool as fault:
            raise DataError(
                f"one of {self._workers} worker processes was ended from outside, most likely for want of memory: "
                "give fewer workers=, or a machine with more memory; what is finished is kept"
            ) from fault
        return [found[part.number] for part in parts]


def _end_processes(pool: concurrent.futures.ProcessPoolExecutor) -> None:
    processes: dict[int, Any] | None = getattr(pool, "_processes", None)
    for process in list((processes or {}).values()):
        with contextlib.suppress(OSError, ValueError):
            process.terminate()


@dataclass
class _Worker:
    """What a worker process keeps between its tasks."""

    engine: Engine
    counters: Any
    place: int
    chat: ChatEncoder | None = None


_WORKER: list[_Worker] = []


def _end_with(parent: Any) -> None:
    parent.join()
    os._exit(1)


def _begin(choice: EngineChoice, counters: Any, next_place: Any) -> None:
    # A killed parent can tell nobody to stop, and its workers would wait for ever.
    if (parent := multiprocessing.parent_process()) is not None:
        threading.Thread(target=_end_with, args=(parent,), daemon=True).start()
    with next_place.get_lock():
        place = next_place.value
        next_place.value += 1
    _WORKER[:] = [_Worker(choice.load(), counters, place % (len(counters) // 2))]


def _probe(sample: Sequence[str], special: Sequence[str]) -> Probed:
    return probe(_WORKER[0].engine, sample, special)


def _engine_name() -> str:
    return _WORKER[0].engine.name


def _make(job: Job, part: Part) -> PartRecord:
    worker = _WORKER[0]
    counters, place = worker.counters, worker.place

    def told(read: int, tokens: int) -> None:
        counters[2 * place], counters[2 * place + 1] = read, tokens

    if worker.chat is None:
        worker.chat = chat_encoder(job, worker.engine)
    try:
        return make_part(job, part, job.reader(worker.engine, worker.chat), told)
    finally:
        told(0, 0)


def chat_encoder(job: Job, engine: Engine) -> ChatEncoder | None:
    """What encodes chats for ``job``, where it has a template."""
    if job.chat_template is None:
        return None
    assert isinstance(engine, ReferenceEngine)  # offsets are asked for, which no other gives
    return ChatEncoder(
        engine.tokenizer,
        template=job.chat_template,
        label=job.identity.location,
        learned=getattr(job.format, "learned", "all"),
        bos_token=job.bos_token,
        eos_token=job.identity.eos_token,
    )


preloaded.finish()
