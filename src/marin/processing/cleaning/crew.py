"""Worker processes that do one task after another, each with what all tasks share.

The processes are forked from one that runs nothing else, so that no lock of this process is held in them for ever.
"""

from __future__ import annotations

import concurrent.futures
import concurrent.futures.process
import contextlib
import multiprocessing
import multiprocessing.connection
import os
import pickle
import threading
from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar, final

from marin.errors import DataError
from marin.execution.sendable import dumped

_LOOK_SECONDS = 0.2

R = TypeVar("R")

Told = Callable[[int], None]


class Crew(Protocol):
    """Does tasks, here or in other processes. Use as a context manager: leaving it ends them."""

    def each(
        self, do: Callable[..., R], tasks: Sequence[tuple[Any, ...]], ended: Callable[[int, R], None], told: Told
    ) -> list[R]:
        """``do(shared, *task, told)`` for each task, in the order of the tasks. What ``do`` raises ends all."""
        ...

    def __enter__(self) -> Crew: ...

    def __exit__(self, *fault: object) -> None: ...


def open_crew(shared: object, workers: int) -> Crew:
    """A crew of so many processes; of one, this process itself."""
    return _Here(shared) if workers == 1 else _Processes(shared, workers)


@final
class _Here:
    def __init__(self, shared: object) -> None:
        self._shared = shared

    def __enter__(self) -> _Here:
        return self

    def __exit__(self, *fault: object) -> None:
        pass

    def each(
        self, do: Callable[..., R], tasks: Sequence[tuple[Any, ...]], ended: Callable[[int, R], None], told: Told
    ) -> list[R]:
        found = list[R]()
        for place, task in enumerate(tasks):
            found.append(do(self._shared, *task, told))
            ended(place, found[-1])
        return found


@final
class _Processes:
    def __init__(self, shared: object, workers: int) -> None:
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload([__name__, "marin.processing.cleaning.part_work"])
        self._counters = context.Array("q", workers)
        self._next = context.Value("q", 0)
        # A function of a script's travels by value, as it did to this process.
        data = dumped("the step", shared=shared)
        self._pool = concurrent.futures.ProcessPoolExecutor(
            workers, mp_context=context, initializer=_begin, initargs=(data, self._counters, self._next)
        )
        self._workers = workers

    def __enter__(self) -> _Processes:
        return self

    def __exit__(self, *fault: object) -> None:
        if fault[0] is not None:
            _end_processes(self._pool)
        self._pool.shutdown(wait=True, cancel_futures=True)

    def each(
        self, do: Callable[..., R], tasks: Sequence[tuple[Any, ...]], ended: Callable[[int, R], None], told: Told
    ) -> list[R]:
        futures = {self._pool.submit(_do, do, task): place for place, task in enumerate(tasks)}
        found, waiting = dict[int, R](), set(futures)
        try:
            while waiting:
                done, waiting = concurrent.futures.wait(waiting, _LOOK_SECONDS, concurrent.futures.FIRST_COMPLETED)
                for future in done:
                    found[futures[future]] = future.result()
                    ended(futures[future], found[futures[future]])
                told(sum(self._counters[:]))
        except concurrent.futures.process.BrokenProcessPool as fault:
            raise DataError(
                f"one of {self._workers} worker processes was ended from outside, most likely for want of memory: "
                "give fewer workers=, or a machine with more memory; what is finished is kept"
            ) from fault
        return [found[place] for place in range(len(tasks))]


def _end_processes(pool: concurrent.futures.ProcessPoolExecutor) -> None:
    processes: dict[int, Any] | None = getattr(pool, "_processes", None)
    for process in list((processes or {}).values()):
        with contextlib.suppress(OSError, ValueError):
            process.terminate()


_WORKER = dict[str, Any]()
"""What a worker process keeps between its tasks."""


def _begin(data: bytes, counters: Any, next_place: Any) -> None:
    threading.Thread(target=_end_with_parent, daemon=True).start()
    with next_place.get_lock():
        place = next_place.value
        next_place.value += 1
    _WORKER.update(shared=pickle.loads(data)["shared"], counters=counters, place=place % len(counters))


def _end_with_parent() -> None:
    """A worker whose step was killed would write on beside the next attempt."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        multiprocessing.connection.wait([parent.sentinel])
        os._exit(1)


def _do(do: Callable[..., Any], task: tuple[Any, ...]) -> Any:
    counters, place = _WORKER["counters"], _WORKER["place"]

    def told(read: int) -> None:
        counters[place] = read

    try:
        return do(_WORKER["shared"], *task, told)
    finally:
        told(0)
