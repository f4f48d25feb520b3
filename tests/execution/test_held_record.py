"""A lease that is held: renewed, ended and lost, on any store that swaps, also one that fails when its work is done."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from marin.errors import LeaseLostError, StorageFullError, StoreError
from marin.execution.held_record import HeldRecord, stopped
from marin.execution.identity import ArtifactId
from marin.execution.record import Attempt, Record, State, StopRequest, decode_record, encode_record, record_path
from marin.storage.local import LocalStore
from marin.storage.memory import MemoryStore
from marin.storage.store import Store
from marin.testing import FakeClock
from tests.execution.records import attempt, build

ID = ArtifactId("raw/poems", "2026.07.01")
PATH = record_path(ID.address)


class Unsure:
    """A store in memory whose next swaps fail as ``moments`` say: before or after their work, or not at all."""

    def __init__(self, *moments: str) -> None:
        self._store = MemoryStore()
        self.moments = list(moments)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def compare_and_swap(self, path: str, expected: bytes | None, new: bytes) -> bool:
        moment = self.moments.pop(0) if self.moments else "never"
        if moment == "before":
            raise StoreError("no answer")
        done = self._store.compare_and_swap(path, expected, new)
        if moment == "after":
            raise StoreError("no answer")
        if moment == "retried":  # the client of a bucket has repeated a request that was carried out at first
            return self._store.compare_and_swap(path, expected, new)
        return done


def hold(store: Any, ours: Attempt | None = None, *, clock: Callable[[], float] = time.monotonic) -> HeldRecord:
    ours = ours or attempt()
    record = Record(name=ID.name, version=ID.version, state=State.BUILDING, attempt=ours)
    raw = encode_record(record)
    store.write(PATH, raw)
    return HeldRecord(store, record, ours, raw, clock=clock)


def recorded(store: Any) -> Record:
    return decode_record(store.read(PATH), PATH)


def taken_over(store: Any) -> bytes:
    lease = msgspec.structs.replace(attempt().lease, nonce="another", term=2)
    record = Record(name=ID.name, version=ID.version, state=State.BUILDING, attempt=attempt("a2", lease=lease))
    raw = encode_record(record)
    store.write(PATH, raw)
    return raw


@pytest.fixture(params=["memory", "disk"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    return MemoryStore() if request.param == "memory" else LocalStore(tmp_path / "store")


def test_a_renewal_is_a_beat_in_the_record(store: Store):
    held = hold(store)
    assert [held.renew(), held.renew()] == [True, True]
    seen = recorded(store).attempt
    assert seen is not None
    assert seen.lease.beat == 2


def test_a_lease_is_renewed_long_before_it_ends_and_soon_again_after_a_bad_moment():
    clock = FakeClock()
    held = hold(Unsure("before"), clock=clock)  # 90 seconds
    assert held.next_renewal == 30
    clock.advance(30)
    assert not held.renew()
    assert (held.renewed, held.next_renewal) == (0, 39)
    clock.advance(9)
    assert held.renew()
    assert (held.renewed, held.next_renewal) == (39, 69)


@pytest.mark.parametrize("moment", ["after", "retried"])
def test_a_renewal_that_was_written_counts_whatever_the_store_answers(moment: str):
    held = hold(Unsure(moment))
    assert held.renew()
    assert held.renew()
    assert not held.is_lost


def test_a_moment_in_which_the_store_fails_costs_no_lease():
    store = Unsure("before", "before")
    held = hold(store)
    assert [held.renew(), held.renew(), held.renew()] == [False, False, True]
    held.publish(build(), None)
    assert recorded(store).state is State.BUILT


def test_a_store_that_can_not_even_be_read_for_a_moment_costs_no_lease(monkeypatch: pytest.MonkeyPatch):
    store = Unsure("after")
    held = hold(store)
    with monkeypatch.context() as patch:

        def unreadable(path: str) -> bytes:
            raise StoreError(f"{path}: no answer")

        patch.setattr(store, "read", unreadable, raising=False)
        assert not held.renew()
    assert held.renew()  # what was written in the bad moment has our nonce


@pytest.mark.parametrize("moment", ["after", "retried"])
def test_a_build_that_was_recorded_is_published_whatever_the_store_answers(moment: str):
    store = Unsure(moment)
    hold(store).publish(build(), None)
    assert recorded(store).state is State.BUILT


@pytest.mark.parametrize("moment", ["after", "retried"])
def test_a_failure_that_was_recorded_is_recorded_whatever_the_store_answers(moment: str):
    store = Unsure(moment)
    assert hold(store).fail("ValueError: no ink", None, None)
    assert recorded(store).state is State.FAILED


@pytest.mark.parametrize("moments", [(), ("before",), ("after",)])
@pytest.mark.parametrize(
    "act",
    [
        lambda held: held.renew(),
        lambda held: held.fail("late", None, None),
        lambda held: held.publish(build(), None),
    ],
    ids=["renew", "fail", "publish"],
)
def test_who_was_replaced_changes_nothing(moments: tuple[str, ...], act: Callable[[HeldRecord], object]):
    store = Unsure(*moments)
    held = hold(store)
    successor = taken_over(store)
    for _ in range(3):
        try:
            assert not act(held)
        except (LeaseLostError, StoreError):
            continue
    assert store.read(PATH) == successor
    assert not held.renew()
    assert held.is_lost


@pytest.mark.parametrize("content", [None, b"", b"{", b'{"schema": 1}'])
def test_a_record_that_was_removed_or_torn_is_a_lost_lease(store: Store, content: bytes | None):
    held = hold(store)
    if content is None:
        store.delete(PATH)
    else:
        store.write(PATH, content)
    assert not held.renew()
    assert held.is_lost
    assert store.read(PATH) == content


def test_of_two_holders_the_later_one_publishes(store: Store):
    first = hold(store)
    second = hold(store, attempt("a2", lease=msgspec.structs.replace(attempt().lease, nonce="another", term=2)))
    with pytest.raises(LeaseLostError, match=r"raw/poems@2026\.07\.01: this builder was silent for more than 90 s"):
        first.publish(build("b1"), None)
    second.publish(build("b2"), None)
    assert not first.fail("late", None, None)
    published = recorded(store)
    assert published.build is not None
    assert (published.state, published.build.build_id) == (State.BUILT, "b2")


def test_who_could_not_renew_says_what_was_in_the_way():
    store = MemoryStore()
    held = hold(store)

    def full(*_: Any) -> bool:
        raise StorageFullError("store: no room to write")

    store.compare_and_swap = full
    assert not held.renew()
    assert held.is_hopeless
    assert "could not renew its lease: store: no room to write" in str(held.lost())


def test_a_renewal_that_succeeds_forgets_the_bad_moment():
    held = hold(Unsure("before"))
    assert [held.renew(), held.renew()] == [False, True]
    assert held.fault is None


def test_a_record_that_was_removed_is_not_called_silence(store: Store):
    held = hold(store)
    store.delete(PATH)
    assert not held.renew()
    assert "was removed by somebody while it was built" in str(held.lost())


def test_a_record_that_somebody_began_anew_is_not_called_silence(store: Store):
    held = hold(store)
    lease = msgspec.structs.replace(attempt().lease, nonce="another", term=1)
    store.write(
        PATH,
        encode_record(
            Record(name=ID.name, version=ID.version, state=State.BUILDING, attempt=attempt("a2", lease=lease))
        ),
    )
    assert not held.renew()
    assert "was removed or replaced by somebody" in str(held.lost())


def test_who_was_taken_over_was_silent(store: Store):
    held = hold(store)
    taken_over(store)
    assert not held.renew()
    assert "was silent for more than 90 s" in str(held.lost())


def test_who_wakes_up_after_it_was_stopped_knows_it(store: Store):
    held = hold(store)
    request = StopRequest(by="anna@node7", at="2026-07-02T10:00:00Z")
    ended = attempt(error="stopped by anna@node7", stop=request)
    store.write(PATH, encode_record(Record(name=ID.name, version=ID.version, state=State.FAILED, attempt=ended)))
    assert not held.renew()
    assert held.is_lost
    assert held.attempt.stop == request


def test_who_stopped_a_step_and_what_a_new_run_does_is_told():
    told = str(stopped(ID, StopRequest(by="anna@node7", at="2026-07-02T10:00:00Z")))
    assert told.startswith(
        "raw/poems@2026.07.01 was stopped by anna@node7 at 2026-07-02T10:00:00Z. A new run builds it"
    )
    assert told.endswith("; a resumable step goes on from what it has saved")
