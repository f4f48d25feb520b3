"""What every executor must do. A new one inherits ``ExecutorContract`` and says how to make it."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
import uuid
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from marin.executors.executor import Executor, JobSpec
from marin.executors.resources import ResourceConfig
from tests.executors.processes import MARK, PATIENCE, end_marked, eventually, marked

SpecMaker = Callable[..., JobSpec]

STUBBORN = "trap '' TERM INT HUP; echo ready; while true; do sleep 1000; done"


def submit_stubborn(executor: Executor, request: JobSpec) -> str:
    """The job, once it is deaf to all that can be ignored."""
    job = executor.submit(request)
    eventually(lambda: "ready" in Path(request.log_path).read_text())
    return job


def lives_on_while_renewed(executor: Executor, spec: SpecMaker) -> bool:
    """Whether a job was seen to live for two of its leases. Not so where this machine was too busy to renew in time."""
    began = renewed = time.monotonic()
    job = executor.submit(spec("sleep", "1000", lease_seconds=1.0))
    while time.monotonic() - began < 2.0:
        now = time.monotonic()
        executor.renew(job, 1.0)
        if not executor.wait(job, 0.1).running:
            assert time.monotonic() - renewed >= 1.0, "it has ended, though it was renewed in time"
            return False
        renewed = now
    assert executor.wait(job, PATIENCE).reason == "expired"
    return True


class ExecutorContract:
    """Inherit it, and give a fixture ``executor``."""

    @pytest.fixture
    def mark(self):
        """The mark of this test's jobs. None of their processes may be there at its end."""
        mark = uuid.uuid4().hex
        yield mark
        end_marked(mark)

    @pytest.fixture
    def spec(self, tmp_path: Path, mark: str) -> SpecMaker:
        def make(*argv: str, lease_seconds: float = 3600.0, **env: str) -> JobSpec:
            return JobSpec(
                name="poems",
                argv=argv,
                env={"PATH": os.environ["PATH"], MARK: mark, **env},
                cwd=str(tmp_path),
                log_path=str(tmp_path / "logs" / "poems.log"),
                lease_seconds=lease_seconds,
            )

        return make

    def test_a_job_that_ends_well_has_exit_code_0(self, executor: Executor, spec: SpecMaker):
        job = executor.submit(spec("true"))
        state = executor.wait(job, PATIENCE)
        assert (state.running, state.exit_code, state.signal, state.reason) == (False, 0, None, None)
        assert executor.poll(job) == state

    def test_the_exit_code_is_told(self, executor: Executor, spec: SpecMaker):
        assert executor.wait(executor.submit(spec("sh", "-c", "exit 3")), PATIENCE).exit_code == 3

    def test_the_signal_that_ended_it_is_told(self, executor: Executor, spec: SpecMaker):
        state = executor.wait(executor.submit(spec("sh", "-c", "kill -SEGV $$")), PATIENCE)
        assert (state.exit_code, state.signal, state.reason) == (None, signal.SIGSEGV, None)

    def test_a_job_killed_from_outside_was_not_ended_by_us(self, executor: Executor, spec: SpecMaker):
        state = executor.wait(executor.submit(spec("sh", "-c", "kill -KILL $$")), PATIENCE)
        assert (state.signal, state.reason) == (signal.SIGKILL, None)

    def test_a_command_that_is_not_there_ends_with_127_and_the_log_says_so(self, executor, spec: SpecMaker):
        request = spec("no-such-command")
        assert executor.wait(executor.submit(request), PATIENCE).exit_code == 127
        assert "no-such-command" in Path(request.log_path).read_text()

    def test_output_and_errors_are_appended_to_the_log(self, executor: Executor, spec: SpecMaker):
        request = spec("sh", "-c", "echo out; echo err >&2")
        Path(request.log_path).parent.mkdir()
        Path(request.log_path).write_text("before\n")
        executor.wait(executor.submit(request), PATIENCE)
        assert Path(request.log_path).read_text() == "before\nout\nerr\n"

    def test_the_job_gets_its_environment_its_folder_no_input_and_nothing_else(self, executor, spec, mark, tmp_path):
        code = "import os, sys; print(sorted(os.environ), os.getcwd(), sys.stdin.read(), os.listdir('/proc/self/fd'))"
        # With a locale given, Python itself adds nothing to the environment.
        request = spec(sys.executable, "-S", "-c", code, LC_ALL="C.UTF-8")
        executor.wait(executor.submit(request), PATIENCE)
        names = sorted(["PATH", MARK, "LC_ALL", "MARIN_JOB"])  # the last is the executor's own, by which it finds them
        # 3 is the listing itself.
        assert Path(request.log_path).read_text() == f"{names} {tmp_path}  ['0', '1', '2', '3']\n"

    def test_no_signal_is_blocked_or_ignored(self, executor: Executor, spec: SpecMaker):
        request = spec("grep", "-E", "SigBlk|SigIgn", "/proc/self/status")
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1, signal.SIGTERM])
        before = signal.signal(signal.SIGQUIT, signal.SIG_IGN)  # as a shell does it for what runs in the background
        try:
            executor.wait(executor.submit(request), PATIENCE)
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGUSR1, signal.SIGTERM])
            signal.signal(signal.SIGQUIT, before)
        # Signals 32 and 33 belong to the C library: no program may set them, and some launchers ignore them.
        reserved = 0b11 << 31
        masks = dict(line.split(":\t") for line in Path(request.log_path).read_text().splitlines())
        assert {name: int(mask, 16) & ~reserved for name, mask in masks.items()} == {"SigBlk": 0, "SigIgn": 0}

    def test_it_runs_in_a_session_of_its_own(self, executor: Executor, spec: SpecMaker):
        request = spec(sys.executable, "-S", "-c", "import os; print(os.getsid(0))")
        executor.wait(executor.submit(request), PATIENCE)
        assert int(Path(request.log_path).read_text()) != os.getsid(0)

    def test_names_with_spaces_and_quotes_arrive_as_they_are(self, executor: Executor, spec: SpecMaker):
        request = spec("printf", "%s|", "a b", "it's", '"', "$HOME", "ü\n", "")
        executor.wait(executor.submit(request), PATIENCE)
        assert Path(request.log_path).read_text() == "a b|it's|\"|$HOME|ü\n||"

    def test_a_running_job_is_told_as_running(self, executor: Executor, spec: SpecMaker):
        job = executor.submit(spec("sleep", "1000"))
        assert executor.poll(job).running
        assert executor.wait(job, 0.05).running
        executor.cancel(job, 0)
        assert not executor.wait(job, PATIENCE).running

    def test_cancel_lets_a_job_end_by_itself(self, executor: Executor, spec: SpecMaker):
        request = spec("sh", "-c", "trap 'echo saved; exit 5' TERM; echo ready; while true; do sleep 0.05; done")
        job = executor.submit(request)
        eventually(lambda: "ready" in Path(request.log_path).read_text())
        executor.cancel(job, PATIENCE)
        state = executor.wait(job, PATIENCE)
        assert (state.exit_code, state.reason) == (5, "cancelled")
        assert "saved" in Path(request.log_path).read_text()

    def test_cancel_kills_what_will_not_end(self, executor: Executor, spec: SpecMaker, mark: str):
        job = submit_stubborn(executor, spec("sh", "-c", STUBBORN))
        executor.cancel(job, 0.2)
        state = executor.wait(job, PATIENCE)
        assert (state.signal, state.reason) == (signal.SIGKILL, "cancelled")
        assert marked(mark) == []

    def test_a_job_cancelled_at_once_needs_no_grace(self, executor: Executor, spec: SpecMaker):
        for _ in range(5):
            job = executor.submit(spec("sleep", "1000"))
            executor.cancel(job, 1000)
            assert executor.wait(job, PATIENCE).signal == signal.SIGTERM

    def test_a_second_cancel_does_not_lengthen_the_grace(self, executor: Executor, spec: SpecMaker):
        job = submit_stubborn(executor, spec("sh", "-c", STUBBORN))
        executor.cancel(job, 0.5)
        executor.cancel(job, 1000)
        assert executor.wait(job, PATIENCE).reason == "cancelled"

    def test_a_second_cancel_shortens_the_grace(self, executor: Executor, spec: SpecMaker, mark: str):
        job = submit_stubborn(executor, spec("sh", "-c", STUBBORN))
        executor.cancel(job, 1000)
        assert executor.wait(job, 0.2).running
        executor.cancel(job, 0)
        assert executor.wait(job, PATIENCE).reason == "cancelled"
        assert marked(mark) == []

    def test_a_job_that_is_not_renewed_ends(self, executor: Executor, spec: SpecMaker, mark: str):
        job = executor.submit(spec("sh", "-c", STUBBORN, lease_seconds=0.5))
        state = executor.wait(job, PATIENCE)
        assert (state.signal, state.reason) == (signal.SIGKILL, "expired")
        assert marked(mark) == []

    def test_a_job_that_is_renewed_lives_on(self, executor: Executor, spec: SpecMaker):
        assert any(lives_on_while_renewed(executor, spec) for _ in range(20))

    def test_a_renewal_can_also_shorten_the_lease(self, executor: Executor, spec: SpecMaker):
        job = executor.submit(spec("sleep", "1000"))
        executor.renew(job, 0.1)
        assert executor.wait(job, PATIENCE).reason == "expired"

    def test_a_cancelled_job_is_not_saved_by_a_renewal(self, executor: Executor, spec: SpecMaker):
        job = submit_stubborn(executor, spec("sh", "-c", STUBBORN))
        executor.cancel(job, 0.3)
        executor.renew(job, 1000)
        assert executor.wait(job, PATIENCE).reason == "cancelled"

    @pytest.mark.parametrize(
        "leave_behind",
        [
            "sleep 1000 & exit 0",
            "setsid sleep 1000 & exit 0",
            "(setsid sh -c 'sleep 1000 & sleep 1000' &) ; exit 0",
            "nohup sh -c 'sleep 1000; echo late' & exit 0",
            f'sh -c "{STUBBORN.replace("&", "")}" & exit 0',
        ],
    )
    def test_what_a_job_leaves_behind_ends_with_it(self, executor, spec, mark, leave_behind: str):
        state = executor.wait(executor.submit(spec("sh", "-c", leave_behind)), PATIENCE)
        assert state.exit_code == 0
        assert marked(mark) == []

    def test_a_stopped_job_can_be_cancelled(self, executor: Executor, spec: SpecMaker, mark: str):
        job = executor.submit(spec("sh", "-c", "kill -STOP $$"))
        executor.cancel(job, 0.2)
        assert executor.wait(job, PATIENCE).reason == "cancelled"
        assert marked(mark) == []

    def test_an_ended_job_can_be_renewed_and_cancelled_to_no_effect(self, executor: Executor, spec: SpecMaker):
        job = executor.submit(spec("true"))
        state = executor.wait(job, PATIENCE)
        executor.renew(job, PATIENCE)
        executor.cancel(job, 0)
        assert executor.poll(job) == state

    def test_a_job_of_somebody_else_is_refused(self, executor: Executor):
        with pytest.raises(LookupError, match="'nobody' was not submitted"):
            executor.poll("nobody")

    def test_many_threads_may_use_one_executor(self, executor: Executor, spec: SpecMaker):
        codes: dict[int, int | None] = {}

        def use(number: int) -> None:
            job = executor.submit(spec("sh", "-c", f"exit {number}"))
            codes[number] = executor.wait(job, PATIENCE).exit_code

        threads = [threading.Thread(target=use, args=(number,)) for number in range(16)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert codes == {number: number for number in range(16)}

    def test_one_job_may_be_watched_by_many_threads(self, executor: Executor, spec: SpecMaker):
        job = executor.submit(spec("sleep", "0.3"))
        seen: list[int | None] = []
        watch = lambda: seen.append(executor.wait(job, PATIENCE).exit_code)  # noqa: E731
        threads = [threading.Thread(target=watch) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert seen == [0] * 8

    def test_a_cpu_is_always_there(self, executor: Executor):
        executor.preflight(ResourceConfig.parse("cpu"))

    def test_a_job_that_prints_without_end_fills_no_disk(self, executor: Executor, spec: SpecMaker):
        request = replace(
            spec("sh", "-c", "echo first; head -c 50000000 /dev/zero; echo; echo last"), log_bytes=300_000
        )
        assert executor.wait(executor.submit(request), PATIENCE).exit_code == 0
        log = Path(request.log_path)
        assert sum(file.stat().st_size for file in log.parent.iterdir()) <= 300_000
        assert Path(f"{log}.0").read_bytes().startswith(b"first\n")
        assert log.read_bytes().endswith(b"\nlast\n")

    def test_a_line_without_end_and_bytes_without_meaning_harm_nobody(self, executor: Executor, spec: SpecMaker):
        request = replace(spec("sh", "-c", "head -c 3000000 /dev/urandom | tr -d '\\n'; echo end"), log_bytes=100_000)
        assert executor.wait(executor.submit(request), PATIENCE).exit_code == 0
        assert Path(request.log_path).read_bytes().endswith(b"end\n")

    def test_a_progress_bar_is_kept_as_it_was_in_the_end(self, executor: Executor, spec: SpecMaker):
        request = spec(
            "sh", "-c", "i=0; while [ $i -lt 500 ]; do printf '\\r%d of 500' $i; i=$((i+1)); done; echo; echo end"
        )
        executor.wait(executor.submit(request), PATIENCE)
        assert Path(request.log_path).read_text() == "499 of 500\nend\n"

    def test_the_last_words_of_a_crash_are_in_the_log(self, executor: Executor, spec: SpecMaker):
        code = "import ctypes, faulthandler; faulthandler.enable(); print('so far', flush=True); ctypes.string_at(0)"
        request = spec(sys.executable, "-S", "-c", code)
        assert executor.wait(executor.submit(request), PATIENCE).signal == signal.SIGSEGV
        told = Path(request.log_path).read_text()
        assert told.startswith("so far\nFatal Python error: Segmentation fault")
        assert told.rstrip().endswith("in <module>") or "Extension modules" in told

    def test_a_job_that_prints_all_the_time_can_be_cancelled_and_expires(self, executor, spec: SpecMaker, mark: str):
        job = executor.submit(replace(spec("yes"), log_bytes=100_000))
        executor.cancel(job, 5)
        assert executor.wait(job, PATIENCE).reason == "cancelled"
        job = executor.submit(replace(spec("yes", lease_seconds=0.3), log_bytes=100_000))
        assert executor.wait(job, PATIENCE).reason == "expired"
        assert marked(mark) == []

    def test_what_keeps_the_output_open_does_not_keep_the_job_from_ending(self, executor, spec: SpecMaker, mark: str):
        request = spec("sh", "-c", "(setsid sh -c 'while true; do echo late; done' &); echo done")
        assert executor.wait(executor.submit(request), PATIENCE).exit_code == 0
        assert "done" in Path(request.log_path).read_text()
        assert marked(mark) == []
