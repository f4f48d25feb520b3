"""A file on its way, from a server whose every answer is drawn at random."""

from __future__ import annotations

import contextlib
import hashlib
import tempfile
import threading
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from marin.processing.origins import Answer, OutOfRange
from marin.processing.retrying import GaveUp, PassingFault, Retries, Stopped, asked_wait, retried
from marin.processing.transfer import Transfer, together

Turn = tuple[Literal["cut", "whole", "refuse", "change"], int]

TURNS = st.lists(st.tuples(st.sampled_from(["cut", "whole", "refuse", "change"]), st.integers(0, 40)), max_size=12)
PATIENT = Retries(tries=99, unanswered=99, in_all=1e9, wait=lambda stop, seconds: None)


@dataclass
class Fickle:
    """Plays ``turns``, then serves. ``change`` puts another content in place; ``validated``: and says so."""

    content: bytes
    turns: list[Turn]
    validated: bool
    shown: str = "fickle://server/file"

    @contextlib.contextmanager
    def open(self, start: int, validator: str | None) -> Generator[Answer, None, None]:
        turn, number = self.turns.pop(0) if self.turns else ("serve", 0)
        if turn == "refuse":
            raise PassingFault("the server answers 503")
        if turn == "change":
            self.content = bytes([number]) * number
        current = hashlib.sha256(self.content).hexdigest() if self.validated else None
        if turn == "whole" or (validator is not None and validator != current):
            start = 0
        size = len(self.content)
        if start and start >= size:
            raise OutOfRange(size)
        end = min(size, start + number) if turn == "cut" else size

        def chunks() -> Iterator[bytes]:
            for begin in range(start, end, 7):
                yield self.content[begin : min(end, begin + 7)]
            if end < size:
                raise PassingFault("the connection was cut")

        yield Answer(start=start, end=size, size=size, validator=current, chunks=chunks())


@given(st.binary(max_size=60), TURNS, TURNS)
def test_what_arrives_is_what_the_server_has_whatever_happens_on_the_way(
    content: bytes, before: list[Turn], after: list[Turn]
):
    server = Fickle(content, before, validated=True)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "file")
        with contextlib.suppress(GaveUp):  # an attempt that ended early
            Transfer(server, str(path)).run(Retries(tries=3, wait=lambda stop, seconds: None))
        server.turns = list(after)
        Transfer(server, str(path)).run(PATIENT)
        assert path.read_bytes() == server.content
        assert [entry.name for entry in Path(folder).iterdir()] == ["file"]


def _fault_of(path: str, *, wanted: bytes) -> str | None:
    return None if Path(path).read_bytes() == wanted else "it is another one"


@given(st.binary(max_size=60), TURNS)
def test_without_a_validator_the_check_of_the_content_keeps_parts_apart(content: bytes, turns: list[Turn]):
    server = Fickle(content, [turn for turn in turns if turn[0] != "change"], validated=False)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "file")
        path.write_bytes(b"?" * 30)  # of another content
        Path(folder, "file.begun").write_text(
            f'{{"shown": "{server.shown}", "validator": null, "size": {len(content)}}}'
        )
        Transfer(server, str(path), fault_of=partial(_fault_of, wanted=content)).run(PATIENT)
        assert path.read_bytes() == content


@given(st.integers(1, 9), st.integers(0, 12))
def test_tries_are_bounded_and_waits_double(tries: int, faults: int):
    waits, left = list[float](), [None] * faults

    def operation() -> str:
        if left:
            left.pop()
            raise PassingFault("it fails")
        return "done"

    retries = Retries(tries=tries, in_all=1e9, wait=lambda stop, seconds: waits.append(seconds))
    if faults < tries:
        assert retried(operation, retries, what="x") == "done"
    else:
        with pytest.raises(GaveUp, match=r"^it fails: try again later \(tried (once|\d times), waiting [\d,]+ s\)$"):
            retried(operation, retries, what="x")
    assert len(waits) == min(faults, tries - 1)
    for number, wait in enumerate(waits):
        assert min(60, 2**number) <= wait <= min(60, 2**number) + 1


def test_the_time_that_is_waited_is_bounded():
    waits = list[float]()
    retries = Retries(tries=99, in_all=10, wait=lambda stop, seconds: waits.append(seconds))

    def operation() -> None:
        raise PassingFault("it fails")

    with pytest.raises(GaveUp):
        retried(operation, retries, what="x")
    assert 0 < sum(waits) <= 10


@given(st.text(), st.text())
def test_a_header_that_is_nonsense_asks_for_nothing_impossible(after: str, limit: str):
    wait = asked_wait({"Retry-After": after, "ratelimit": limit}, now=0.0)
    assert wait is None or wait >= 0


def test_one_that_waits_ends_soon_when_another_fails():
    begun = threading.Event()

    def waits(stop: threading.Event) -> None:
        def operation() -> None:
            begun.set()
            raise PassingFault("it fails", asked=500.0)

        retried(operation, Retries(), what="x", stop=stop)

    def fails(stop: threading.Event) -> None:
        begun.wait()
        raise KeyError("this is the one to tell")

    with pytest.raises(KeyError, match="this is the one"):
        together([waits, fails])


def test_what_is_stopped_is_not_begun():
    stop = threading.Event()
    stop.set()
    with pytest.raises(Stopped):
        retried(lambda: None, Retries(), what="x", stop=stop)
