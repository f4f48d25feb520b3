"""One step is stopped from outside, and its run goes on: real runs in threads of their own, steps that wait."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from marin.errors import RunError, StepStoppedError
from marin.execution import Artifact, ArtifactStep, remote
from marin.execution.catalog import Entry, read_entry
from marin.execution.identity import parse_artifact_id
from marin.execution.record import encode_record, record_path
from marin.execution.runner import resolve, run
from marin.execution.stopping import Answer, Asked, answer, ask_to_stop
from marin.storage.local import LocalStore
from marin.storage.owner import this_process
from marin.testing.recorder import RecordingReporter
from tests.execution.pipelines import poems, report
from tests.execution.records import STRANGER, attempt, build, put
from tests.execution.remote_steps import save_when_told, stumble
from tests.executors.processes import PATIENCE, eventually

SLOW = "raw/slow@2026.07.01"
GO_ON = threading.Event()
WRITTEN = threading.Event()


def wait(config: Any) -> None:
    """A step in a thread: deaf until ``GO_ON``, and then it writes all the same."""
    assert GO_ON.wait(PATIENCE)
    Path(config).mkdir(exist_ok=True)
    Path(config, "late.txt").write_text("late")
    WRITTEN.set()


def save(config: str) -> Any:
    return save_when_told(config)


def stumble_long(config: str) -> Any:
    return stumble({"output_path": config, "calls": f"{config}.calls", "how": "exit", "times": 1})


def slow(function: Any, version: str = "2026.07.01") -> ArtifactStep[Artifact]:
    return ArtifactStep(
        name="raw/slow", version=version, run=function, build_config=lambda ctx: ctx.output_path, artifact_type=Artifact
    )


@pytest.fixture(autouse=True)
def go_on():
    GO_ON.clear()
    WRITTEN.clear()
    yield
    GO_ON.set()


@pytest.fixture
def store(options):
    return LocalStore(options.prefix, durable=False)


def entry(store: LocalStore, id_: str = SLOW) -> Entry | None:
    return read_entry(store, parse_artifact_id(id_))


class Background:
    """A run in a thread. ``fault`` is what it raised."""

    def __init__(self, options: Any, *handles: Any) -> None:
        self.told = RecordingReporter()
        self.fault: BaseException | None = None
        self._thread = threading.Thread(target=self._run, args=(options, handles), daemon=True)
        self._thread.start()

    def _run(self, options: Any, handles: Any) -> None:
        try:
            run(*handles, options=options, reporter=self.told)
        except BaseException as fault:  # noqa: BLE001
            self.fault = fault

    def ended(self) -> BaseException | None:
        self._thread.join(PATIENCE)
        assert not self._thread.is_alive()
        return self.fault


def stop(store: LocalStore) -> Answer:
    """Ask as soon as it is being built, and wait for what comes of it."""

    def asked() -> Asked | None:
        there = entry(store)
        came = ask_to_stop(store, there) if there is not None else None
        return came if isinstance(came, Asked) else None

    request = eventually(asked)
    assert request is not None
    eventually(lambda: answer(store, request)[0] is not Answer.ASKED)
    return answer(store, request)[0]


def by_us() -> str:
    us = this_process()
    return f"{us.user}@{us.host}"


def test_a_step_in_a_process_saves_its_work_and_the_rest_of_the_run_goes_on(options, store):
    step = slow(remote(save, resumable=True))
    background = Background(options, report(poems()), step, report(step, name="reports/blocked"))
    folder = Path(options.prefix, "raw/slow/2026.07.01")
    eventually(lambda: list(folder.glob(".job-*/progress.json")))
    assert stop(store) is Answer.STOPPED
    assert isinstance(background.ended(), RunError)
    assert background.told.outcomes == {"raw/poems@2026.07.01": "built", "reports/words@2026.07.01": "built"}
    assert list(background.told.failures) == [SLOW]
    assert background.told.blocks == {"reports/blocked@2026.07.01": SLOW}
    there = entry(store)
    assert there is not None
    assert there.attempt is not None
    assert there.attempt.error == f"stopped by {by_us()}"
    assert [path.read_text() for path in folder.glob("*/saved")] == ["half a poem"]


def test_a_step_in_a_thread_is_left_to_itself_and_what_it_still_writes_counts_for_nothing(options, store):
    step = slow(wait)
    background = Background(replace(options, max_concurrent=1), step, poems())
    assert stop(store) is Answer.STOPPED
    assert isinstance(background.ended(), RunError)  # though the step still runs
    assert background.told.outcomes == {"raw/poems@2026.07.01": "built"}  # in the place that it had
    before = entry(store)
    GO_ON.set()
    assert WRITTEN.wait(PATIENCE)
    after = entry(store)
    assert before is not None
    assert after is not None
    assert (after.raw, after.condition.value) == (before.raw, "failed")
    assert not Path(options.prefix, "raw/slow/2026.07.01/late.txt").exists()


def test_a_new_run_builds_what_was_stopped(options, store):
    background = Background(options, slow(wait))
    assert stop(store) is Answer.STOPPED
    background.ended()
    GO_ON.set()
    assert resolve(slow(wait), options=options).path.endswith("raw/slow/2026.07.01")


def test_other_runs_that_wait_for_it_do_not_begin_it_anew(options, store):
    builder = Background(options, slow(wait))
    eventually(lambda: entry(store))
    waiting = Background(options, slow(wait), poems())
    eventually(lambda: waiting.told.waits)
    assert stop(store) is Answer.STOPPED
    assert isinstance(builder.ended(), RunError)
    fault = waiting.ended()
    assert isinstance(fault, RunError)
    assert isinstance(fault.__cause__, StepStoppedError)
    assert waiting.told.outcomes == {"raw/poems@2026.07.01": "built"}


def test_a_step_that_pauses_before_a_retry_can_be_stopped(options, store):
    step = slow(remote(stumble_long, retries=5))
    background = Background(replace(options, retry_seconds=1000), step)
    eventually(lambda: background.told.retries)
    assert stop(store) is Answer.STOPPED
    assert isinstance(background.ended(), RunError)


def test_a_step_that_is_done_before_it_notices_is_built(options, store):
    background = Background(options, slow(write_now))
    eventually(lambda: entry(store))
    there = entry(store)
    assert there is not None
    asked = ask_to_stop(store, there)
    GO_ON.set()
    assert background.ended() is None or isinstance(background.fault, RunError)
    if isinstance(asked, Asked):
        came, now = answer(store, asked)
        assert now is not None
        assert (came, now.condition.value) in ((Answer.ENDED, "built"), (Answer.STOPPED, "failed"))


def write_now(config: Any) -> None:
    assert GO_ON.wait(PATIENCE)
    Path(config, "poem.txt").write_text("rose")


def test_a_request_survives_a_renewal(options, store):
    background = Background(replace(options, lease_seconds=0.6), slow(wait))
    assert stop(store) is Answer.STOPPED
    background.ended()


def test_who_is_asked_twice_is_asked_once(store):
    put(store, SLOW, attempt=attempt(owner=STRANGER))
    first = entry(store)
    assert first is not None
    assert isinstance(ask_to_stop(store, first), Asked)
    second = entry(store)
    assert second is not None
    assert isinstance(ask_to_stop(store, second), Asked)
    again = entry(store)
    assert again is not None
    assert again.raw == second.raw
    # From a look that was taken before, too.
    assert isinstance(ask_to_stop(store, first), Asked)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"build": build()}, Answer.NOT_BUILDING),
        ({"attempt": attempt(error="no rhyme")}, Answer.NOT_BUILDING),
        ({"attempt": attempt(owner=replace(this_process(), pid=2**22 - 1, started=1))}, Answer.ABANDONED),
    ],
)
def test_where_nobody_builds_nothing_is_written(store, given: Any, expected: Answer):
    put(store, SLOW, **given)
    there = entry(store)
    assert there is not None
    assert ask_to_stop(store, there) is expected
    after = entry(store)
    assert after is not None
    assert after.raw == there.raw


def test_what_another_run_begins_afterwards_is_not_what_was_asked_to_stop(store):
    put(store, SLOW, attempt=attempt(owner=STRANGER))
    there = entry(store)
    assert there is not None
    asked = ask_to_stop(store, there)
    assert isinstance(asked, Asked)
    put(store, SLOW, attempt=replace_nonce("another"))
    assert answer(store, asked)[0] is Answer.ENDED


def replace_nonce(nonce: str) -> Any:
    given = attempt("a2", owner=STRANGER)
    return msgspec.structs.replace(given, lease=msgspec.structs.replace(given.lease, nonce=nonce))


def silent(ttl_seconds: float) -> Any:
    """An attempt of a builder of which nobody here can tell whether it lives."""
    given = attempt(owner=STRANGER)
    return msgspec.structs.replace(given, lease=msgspec.structs.replace(given.lease, ttl_seconds=ttl_seconds))


def shorten_lease(store: LocalStore) -> None:
    """Of the attempt that is under way."""
    there = entry(store)
    assert there is not None
    assert there.record is not None
    assert there.attempt is not None
    lease = msgspec.structs.replace(there.attempt.lease, ttl_seconds=0.3)
    shorter = msgspec.structs.replace(there.record, attempt=msgspec.structs.replace(there.attempt, lease=lease))
    store.write(record_path(there.id.address), encode_record(shorter))


def test_runs_that_wait_for_a_builder_that_stays_silent_do_not_begin_what_was_stopped_anew(options, store):
    put(store, SLOW, attempt=silent(3600))
    store.delete("raw/slow/2026.07.01/poems.txt")
    waiting = Background(options, slow(write_now))
    eventually(lambda: waiting.told.waits)
    there = entry(store)
    assert there is not None
    asked = ask_to_stop(store, there)
    assert isinstance(asked, Asked)
    shorten_lease(store)
    fault = waiting.ended()
    assert isinstance(fault, RunError)
    assert isinstance(fault.__cause__, StepStoppedError)
    assert answer(store, asked)[0] is Answer.STOPPED
    now = entry(store)
    assert now is not None
    assert now.attempt is not None
    assert now.attempt.error == f"stopped by {by_us()}"


def test_a_run_that_comes_after_the_request_takes_over_from_a_builder_that_stays_silent(options, store):
    put(store, SLOW, attempt=silent(0.3))
    store.delete("raw/slow/2026.07.01/poems.txt")
    there = entry(store)
    assert there is not None
    assert isinstance(ask_to_stop(store, there), Asked)
    GO_ON.set()
    assert resolve(slow(write_now), options=options).path.endswith("raw/slow/2026.07.01")
