"""Steps that are tried again, or take too long: real processes that crash, raise or hang."""

from __future__ import annotations

import errno
import hashlib
import json
import signal
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from marin.errors import (
    ConfigurationError,
    InvalidResourcesError,
    LeaseLostError,
    OutputError,
    RunError,
    StepTimeoutError,
    StoreError,
    WorkerDiedError,
)
from marin.execution import ArtifactStep, remote
from marin.execution.catalog import read_entry
from marin.execution.console import PlainReporter
from marin.execution.manifest import MAX_LISTED, FileEntry, list_files, summarize
from marin.execution.retrying import is_retried, pause_before_retry
from marin.execution.runner import plan, run
from marin.executors.resources import ResourceConfig
from marin.storage.local import LocalStore
from marin.testing.recorder import RecordingReporter
from tests.execution.remote_steps import Count, stumble, write_late


@pytest.fixture
def options(options):
    return replace(options, retry_seconds=0.01)


class Retries(RecordingReporter):
    def __init__(self) -> None:
        super().__init__()
        self.told: list[tuple[str, int, int, float]] = []

    def retrying(self, id_, failed, *, retry, of, seconds):
        self.told.append((failed.error.partition(":")[0], retry, of, seconds))


@pytest.fixture
def told():
    return Retries()


@pytest.fixture
def calls(tmp_path):
    return tmp_path / "calls"


def step(calls: Path, how: str, *, times: int = 1, version: str = "2026.07.01", **where: Any) -> ArtifactStep[Count]:
    return ArtifactStep(
        name="raw/poems",
        version=version,
        artifact_type=Count,
        run=remote(stumble, **where),
        build_config=lambda ctx: {
            "output_path": ctx.output_path,
            "calls": ctx.runtime_arg("calls"),
            "how": how,
            "times": times,
        },
        runtime_args={"calls": str(calls)},
    )


def record(options) -> Any:
    entry = read_entry(LocalStore(options.prefix), step(Path(), "").id)
    assert entry is not None
    return entry.record


@pytest.mark.parametrize("how", ["kill", "exit"])
def test_a_step_that_crashes_is_tried_again(options, calls, told, how: str):
    (count,) = run(step(calls, how, times=2, retries=2), options=options, reporter=told)
    assert count.value == 2
    assert told.told == [("WorkerDiedError", 1, 2, 0.01), ("WorkerDiedError", 2, 2, 0.02)]
    assert told.outcomes == {"raw/poems@2026.07.01": "built"}


def test_each_try_has_a_folder_and_a_log_of_its_own_and_all_are_recorded(options, calls):
    run(step(calls, "exit", times=2, retries=2), options=options)
    build = record(options).build
    tries = [failed.build_id for failed in build.earlier]
    assert [f".build-{id_}" for id_ in (*tries, build.build_id)] == calls.read_text().split()
    for number, failed in enumerate(build.earlier):
        assert "exit code 7" in failed.error
        assert f"stumbles, call {number}" in Path(options.prefix, failed.log).read_text()
    assert not list(Path(options.prefix, "raw/poems/2026.07.01").glob(".build-*"))


def test_without_retries_nothing_is_tried_again(options, calls):
    with pytest.raises(RunError, match="exit code 7"):
        run(step(calls, "exit"), options=options)
    assert len(calls.read_text().split()) == 1


def test_after_the_last_retry_the_step_has_failed(options, calls, told):
    with pytest.raises(RunError, match="exit code 7"):
        run(step(calls, "exit", times=9, retries=1), options=options, reporter=told)
    assert len(calls.read_text().split()) == 2
    attempt = record(options).attempt
    assert (attempt.number, len(attempt.earlier)) == (2, 1)


def test_what_a_step_raises_is_tried_again_only_if_one_asks_for_it(options, calls, told):
    with pytest.raises(RunError, match="no rhyme in call 0"):
        run(step(calls, "raise", retries=3), options=options, reporter=told)
    (count,) = run(step(calls, "raise", times=3, retries=3, retry_on="error"), options=options, reporter=told)
    assert count.value == 3
    assert [error for error, *_ in told.told] == ["PoemError", "PoemError"]


@pytest.mark.parametrize("version", ["2026.07.01", "dev"])
def test_a_resumable_step_goes_on_from_what_the_failed_try_left(options, calls, version: str):
    (count,) = run(step(calls, "kill", times=2, version=version, retries=2, resumable=True), options=options)
    assert count.seen == "01"


def test_another_step_starts_empty(options, calls):
    (count,) = run(step(calls, "kill", times=2, retries=2), options=options)
    assert count.seen == ""


def test_a_step_that_takes_too_long_is_stopped(options, calls):
    with pytest.raises(
        RunError, match=r"raw/poems@2026\.07\.01: StepTimeoutError: ran for longer than its limit of 0\.5s"
    ) as failed:
        run(step(calls, "hang", timeout=0.5), options=options)
    assert isinstance(failed.value.__cause__, StepTimeoutError)
    assert "StepTimeoutError" in record(options).attempt.error


def test_the_time_of_the_resources_is_a_limit_too(options, calls):
    where = {"resources": ResourceConfig(time="1s"), "timeout": "2h"}
    with pytest.raises(RunError, match="longer than its limit of 1s"):
        run(step(calls, "hang", **where), options=options)


def test_a_try_that_took_too_long_is_a_crash(options, calls, told):
    (count,) = run(step(calls, "hang", retries=1, timeout="10s", resumable=True), options=options, reporter=told)
    assert count.seen == "0"
    assert told.told == [("StepTimeoutError", 1, 1, 0.01)]


def test_a_run_that_is_stopped_does_not_wait_for_the_pause(options, calls):
    """In a thread of its own no handler can be installed: it is stopped as a signal would."""
    events: list[str] = []

    class Stops(Retries):
        def retrying(self, id_, failed, *, retry, of, seconds):
            events.append("pause")
            signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        run(step(calls, "exit", retries=1), options=replace(options, retry_seconds=1000), reporter=Stops())
    assert events == ["pause"]
    assert record(options).attempt.error == "interrupted"
    assert threading.current_thread() is threading.main_thread()


def test_a_retry_is_one_line_however_long_its_error_is(options, calls, tmp_path):
    with (tmp_path / "out").open("w+") as out:
        run(step(calls, "exit", retries=1), options=options, reporter=PlainReporter(out))
        out.seek(0)
        told = [line for line in out.read().splitlines() if "retry 1 of 1" in line]
    assert len(told) == 1
    assert "exit code 7" in told[0]
    assert told[0].endswith("retry 1 of 1 in 0.0 s")


def test_retries_and_timeout_are_not_identity(options, calls):
    plain = step(calls, "exit")
    other = step(calls, "exit", retries=3, retry_on="error", timeout="2h")
    assert plain.fingerprint() == other.fingerprint()
    assert [planned.id for planned in plan(other, options=options).to_make] == [plain.id]


@pytest.mark.parametrize(
    ("given", "match"),
    [
        ({"retries": -1}, "retries=-1 is not a number"),
        ({"retries": 1.5}, "retries=1.5 is not"),
        ({"retries": True}, "retries=True is not"),
        ({"retries": 10**9}, "retries=1000000000 is not"),
        ({"retry_on": "crashes"}, "retry_on='crashes': write 'crash'"),
    ],
)
def test_retries_that_can_not_be_meant_are_refused(given: dict[str, Any], match: str):
    with pytest.raises(ConfigurationError, match=match):
        remote(stumble, **given)


def test_a_timeout_that_can_not_be_meant_is_refused():
    with pytest.raises(InvalidResourcesError, match=r"timeout='2hours' .* did you mean '2h'"):
        remote(stumble, timeout="2hours")


@pytest.mark.parametrize(
    "fault",
    [
        OutputError("x"),
        ConfigurationError("x"),
        StoreError("x"),
        LeaseLostError("x"),
        OSError(errno.ENOSPC, "full"),
        OSError(errno.EDQUOT, "quota"),
        OSError(errno.EROFS, "read-only"),
    ],
)
def test_what_would_end_alike_is_never_tried_again(fault: Exception):
    assert not is_retried(fault, "error")
    assert not is_retried(fault, "crash")


@pytest.mark.parametrize("fault", [KeyboardInterrupt(), SystemExit(1)])
def test_who_wants_to_stop_is_not_held_up(fault: BaseException):
    assert not is_retried(fault, "error")


def test_a_crash_is_also_an_error():
    assert is_retried(WorkerDiedError("x"), "error")


def test_a_connection_that_broke_may_hold_the_next_time():
    assert is_retried(OSError(errno.ECONNRESET, "reset by peer"), "error")


def test_a_step_that_filled_the_disk_is_not_tried_again(options, told, calls):
    with pytest.raises(RunError):
        run(step(calls, "full", retries=3, retry_on="error"), options=options, reporter=told)
    assert (told.told, len(calls.read_text().split())) == ([], 1)


def test_pauses_grow_up_to_a_minute():
    assert [pause_before_retry(number, 5) for number in (1, 2, 3, 4, 5, 1000)] == [5, 10, 20, 40, 60, 60]
    assert pause_before_retry(3, 0) == 0
    assert pause_before_retry(1, 300) == 300


def test_a_record_keeps_only_the_last_failed_tries(options, calls):
    run(step(calls, "exit", times=12, retries=12), options=options)
    build = record(options).build
    assert len(build.earlier) == 10
    assert len(json.dumps([failed.error for failed in build.earlier])) < 30_000


@pytest.mark.parametrize("files", [0, 6, 7, 20])
def test_what_a_process_writes_until_it_has_ended_is_in_the_manifest(options, files):
    handle = ArtifactStep(
        name="raw/poems",
        version="2026.07.01",
        run=remote(write_late),
        artifact_type=Count,
        build_config=lambda ctx: {"out": ctx.output_path, "files": files},
    )
    (made,) = run(handle, options=options)
    manifest = record(options).build.manifest
    assert manifest.files == files + 2
    beside = Path(made.path, ".manifest.json")
    assert beside.exists() == (files + 2 > MAX_LISTED)
    told = manifest.listed or [FileEntry(**entry) for entry in json.loads(beside.read_text())]
    assert manifest == summarize(told, listed=manifest.listed is not None)
    there = {entry.path for entry in list_files(made.path) if not entry.path.startswith((".artifact", ".logs"))}
    assert {entry.path for entry in told} == there
    for entry in told:
        assert entry.sha256 == hashlib.sha256(Path(made.path, entry.path).read_bytes()).hexdigest()
    assert Path(made.path, "unflushed.txt").read_text() == "rose"
