from __future__ import annotations

import functools
import importlib.util
import math
import os
import signal
import subprocess
import sys
import textwrap
import threading
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from marin.errors import (
    ConfigurationError,
    LeaseLostError,
    OutputError,
    StepError,
    StepInterruptedError,
    StorageFullError,
    StoreError,
    UnpicklableStepError,
    WorkerDiedError,
)
from marin.execution import post_mortem, remote_call
from marin.execution.artifact import Artifact
from marin.execution.failure import Failure
from marin.execution.progress import Progress
from marin.execution.remote_call import RemoteCall, check_sendable
from marin.execution.step_body import Completed
from marin.executors.executor import JobState
from marin.executors.local import LocalExecutor
from tests.execution import remote_steps as steps
from tests.executors.processes import MARK, PATIENCE, eventually, marked

STEPS = "tests.execution.remote_steps"


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., RemoteCall]]:
    executor = LocalExecutor()
    calls: list[RemoteCall] = []
    mark = uuid.uuid4().hex

    def start_call(
        function: Any,
        config: Any = None,
        *,
        artifact_type: type[Artifact] = steps.Count,
        lease_seconds: float = 3600,
        **env: str,
    ) -> RemoteCall:
        output_path = tmp_path / f"output-{len(calls)}"
        output_path.mkdir()
        call = RemoteCall.start(
            executor,
            name="poems@dev",
            function=function,
            config=config,
            artifact_type=artifact_type,
            output_path=str(output_path),
            job_folder=str(tmp_path / "jobs" / str(len(calls))),
            log_path=str(tmp_path / "logs" / "poems.log"),
            env={MARK: mark, **env},
            lease_seconds=lease_seconds,
        )
        calls.append(call)
        return call

    yield start_call
    for call in calls:
        call.close()
    assert marked(mark) == []
    assert not any((tmp_path / "jobs").iterdir())


def completed(call: RemoteCall) -> Completed:
    answer = call.wait(PATIENCE)
    assert answer is not None
    return answer


def log_of(call: RemoteCall) -> str:
    return Path(call.log_path).read_text()


@pytest.mark.parametrize("function", [f"{STEPS}:double", steps.double])
def test_a_function_and_its_name_are_run_alike(start, function: Any):
    call = start(function, 21)
    assert completed(call).result == {"value": 42, "seen": ""}
    assert call.poll() == call.poll()


def test_a_closure_travels_with_what_it_holds(start):
    factor = 3
    assert completed(start(lambda config: steps.Count(value=config * factor), 5)).result["value"] == 15


def test_what_the_step_wrote_is_listed(start, tmp_path: Path):
    manifest = completed(start(steps.write, str(tmp_path / "output-0"))).manifest
    assert (manifest.files, manifest.bytes) == (1, 5)
    assert manifest.listed is not None
    assert manifest.listed[0].bytes == (tmp_path / "output-0" / manifest.listed[0].path).stat().st_size


def test_a_step_that_has_lost_its_import_path_is_told_of_as_any_other(start):
    assert completed(start(steps.lose_path, "return")).result["value"] == 1
    with pytest.raises(steps.PoemError, match="no rhyme"):
        completed(start(steps.lose_path, "fail"))


def test_a_step_that_has_opened_as_many_files_as_it_may_is_told_of(start):
    with pytest.raises(OSError, match="Too many open files"):
        completed(start(steps.open_too_much, None))


@pytest.mark.parametrize("step", [steps.report_arrays, steps.forget_modules])
def test_odd_reports_and_lost_modules_do_no_harm(start, step: Any):
    assert completed(start(step, None)).result["value"] in (1, 3)


def test_an_error_with_an_odd_number_arrives(start):
    with pytest.raises(OSError, match="no rhyme"):
        completed(start(steps.raise_odd_number, None))


def test_a_result_that_a_record_can_not_hold_is_refused_there(start):
    with pytest.raises(OutputError, match=r"Count\.value is infinite or not a number"):
        completed(start(steps.double, math.nan))


def test_a_result_of_megabytes_arrives(start):
    assert len(completed(start(steps.large, 5_000_000)).result["seen"]) == 5_000_000


def test_the_worker_sees_our_path_our_folder_and_our_environment(start, tmp_path: Path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend("/made/up")
    monkeypatch.setenv("POEM", "ode")
    assert completed(start(steps.see, "path")).result["seen"] == os.pathsep.join(sys.path)
    assert completed(start(steps.see, "folder")).result["seen"] == str(tmp_path)
    assert "'POEM': 'ode'" in completed(start(steps.see, "environment")).result["seen"]
    assert "'POEM': 'sonnet'" in completed(start(steps.see, "environment", POEM="sonnet")).result["seen"]


def test_a_worker_imports_nothing_heavy(start):
    modules = completed(start(f"{STEPS}:see", "modules")).result["seen"].split()
    assert not {"numpy", "jax", "pyarrow", "rich", "cloudpickle", "asyncio", "tokenizers"} & set(modules)


def test_a_module_in_the_working_folder_does_not_shadow_the_workers_own(start, tmp_path: Path, monkeypatch):
    (tmp_path / "msgspec.py").write_text("1 / 0")
    (tmp_path / "signal.py").write_text("1 / 0")
    monkeypatch.chdir(tmp_path)
    assert completed(start(steps.double, 1)).result["value"] == 2


def test_the_function_and_the_classes_of_a_script_travel_by_value(tmp_path: Path):
    script = tmp_path / "my script.py"
    script.write_text(
        textwrap.dedent(
            """
            from __future__ import annotations
            import sys
            from dataclasses import dataclass
            from marin.execution.artifact import Artifact
            from marin.execution.remote_call import RemoteCall
            from marin.executors.local import LocalExecutor

            @dataclass(frozen=True)
            class Inner:
                lines: int

            @dataclass(frozen=True)
            class Poem(Artifact):
                inner: Inner

                def verify(self):
                    assert self.inner.lines == 4 and self.path

            class VerseError(Exception):
                pass

            @dataclass(frozen=True)
            class Config:
                lines: int

            def helper(lines):
                if lines > 4:
                    raise VerseError("too long")
                return Inner(lines)

            def write(config: Config) -> Poem:
                return Poem(inner=helper(config.lines))

            def start(lines):
                folder = sys.argv[1]
                return RemoteCall.start(
                    LocalExecutor(), name="poem@dev", function=write, config=Config(lines), artifact_type=Poem,
                    output_path=folder, job_folder=f"{folder}/../job{lines}", log_path=f"{folder}/../log", env={},
                    lease_seconds=3600,
                )

            print(start(4).wait(240).result)
            try:
                start(5).wait(240)
            except VerseError as error:
                print("caught", error)
            """
        )
    )
    (tmp_path / "output").mkdir()
    argv = [sys.executable, str(script), str(tmp_path / "output")]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=PATIENCE, cwd=tmp_path)
    assert done.stdout == "{'inner': {'lines': 4}}\ncaught too long\n", done.stderr


def test_an_exception_arrives_as_it_was_raised(start):
    call = start(steps.raise_error, "poem")
    with pytest.raises(steps.PoemError, match="no rhyme") as raised:
        call.wait(PATIENCE)
    (note,) = raised.value.__notes__
    assert "In the process of poems@dev" in note
    assert "in raise_error" in note
    failure = Failure.from_exception(raised.value)
    assert failure.frame.startswith("tests/execution/remote_steps.py:")
    assert failure.frame.endswith("in raise_error")
    assert log_of(call).startswith("about to fail\n")
    assert "PoemError: no rhyme" in log_of(call)


@pytest.mark.parametrize(
    ("kind", "text"),
    [("stubborn", "StubbornError: ode:3"), ("locked", "LockedError: locked up"), ("exit", "SystemExit: goodbye")],
)
def test_an_exception_that_cannot_travel_arrives_as_text(start, kind: str, text: str):
    with pytest.raises(StepError, match=f"^{text}\n") as raised:
        start(steps.raise_error, kind).wait(PATIENCE)
    assert "in raise_error" in raised.value.__notes__[0]
    assert Failure.from_exception(raised.value).error == text.partition(":")[0]


def test_an_exception_of_megabytes_arrives(start):
    with pytest.raises(steps.PoemError) as raised:
        start(steps.raise_error, "huge").wait(PATIENCE)
    assert len(str(raised.value)) == 5_000_000
    assert len(Failure.from_exception(raised.value).message) < 20_000


def test_faults_of_the_step_itself_arrive(start):
    with pytest.raises(OutputError, match="returned Count, but its artifact_type is Other"):
        start(steps.double, 1, artifact_type=Other).wait(PATIENCE)
    with pytest.raises(ConfigurationError, match="there is no module 'no_such_poet'"):
        start("no_such_poet:write").wait(PATIENCE)


@dataclass(frozen=True)
class Other(Artifact):
    pass


@pytest.mark.parametrize("step", [steps.segfault, steps.segfault_in_thread])
def test_a_segfault_is_told_with_its_line_and_its_log(start, step: Any):
    with pytest.raises(WorkerDiedError) as raised:
        start(step).wait(PATIENCE)
    message = str(raised.value)
    assert "poems@dev: its process was ended by SIGSEGV: native code touched memory that is not there" in message
    assert "at tests/execution/remote_steps.py:" in message
    assert "in segfault\n" in message
    assert "logs/poems.log ends with:" in message
    assert Failure.from_exception(raised.value).frame.endswith("in segfault")


def test_kill_9_is_told_with_both_causes(start):
    with pytest.raises(WorkerDiedError, match=r"ended by SIGKILL.*(from outside|memory)"):
        start(steps.kill_self, signal.SIGKILL).wait(PATIENCE)


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (signal.SIGABRT, "SIGABRT: native code gave up"),
        (signal.SIGBUS, "SIGBUS"),
        (signal.SIGRTMIN + 3, "ended by signal 37"),
    ],
)
def test_other_signals_are_named(start, number: int, text: str):
    with pytest.raises(WorkerDiedError, match=text):
        start(steps.kill_self, number).wait(PATIENCE)


def test_a_hard_exit_is_told_with_the_end_of_the_log_of_this_attempt(start):
    with pytest.raises(WorkerDiedError, match="exit code 4"):
        start(steps.exit_hard, 4).wait(PATIENCE)
    with pytest.raises(WorkerDiedError) as raised:
        start(steps.kill_self, signal.SIGKILL).wait(PATIENCE)
    assert "line 29" not in str(raised.value)
    assert "is empty" in str(raised.value)
    with pytest.raises(WorkerDiedError) as raised:
        start(steps.exit_hard, 3).wait(PATIENCE)
    message = str(raised.value)
    assert "ended with exit code 3 in the middle of the step: something in it called os._exit" in message
    assert "line 10\n" in message
    assert message.endswith("line 29")
    assert "line 9\n" not in message


def test_cancel_lets_the_step_save(start, tmp_path: Path):
    call = start(steps.save_when_told, str(tmp_path))
    eventually(call.progress)
    call.cancel(PATIENCE)
    with pytest.raises(StepInterruptedError, match="poems@dev: RunInterrupted: the step was told to stop"):
        call.wait(PATIENCE)
    assert (tmp_path / "saved").read_text() == "half a poem"


def test_a_step_that_still_completes_when_cancelled_has_completed(start):
    call = start(steps.finish_when_told)
    eventually(call.progress)
    call.cancel(PATIENCE)
    assert completed(call).result["value"] == 7


def test_a_step_that_will_not_stop_is_killed_even_if_it_holds_the_global_lock(start):
    call = start(steps.hold_the_lock)
    eventually(call.progress)
    call.cancel(0.2)
    with pytest.raises(StepInterruptedError, match="was told to stop, and ended without an answer"):
        call.wait(PATIENCE)


def test_a_call_cancelled_at_once_is_interrupted(start):
    call = start(steps.sleep, 60)
    call.cancel(60)
    with pytest.raises(StepInterruptedError):
        call.wait(PATIENCE)


def test_a_worker_that_is_not_renewed_has_lost_its_lease_even_if_it_holds_the_global_lock(start):
    call = start(steps.hold_the_lock)
    eventually(call.progress)
    call.renew(0.2)
    with pytest.raises(LeaseLostError, match="silent for longer than its lease"):
        call.wait(PATIENCE)


def test_what_a_step_leaves_running_is_ended(start):
    # The fixture looks for what is left.
    assert completed(start(steps.leave_shells)).result["value"] == 1


def test_a_forgotten_thread_does_not_keep_the_worker(start, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(remote_call, "EXIT_SECONDS", 0.3)
    call = start(steps.leave_thread)
    eventually(lambda: call.poll() is not None)
    assert completed(call).result["value"] == 1


def test_a_crash_after_the_answer_takes_nothing_back(start):
    assert completed(start(steps.crash_at_exit)).result["value"] == 1


def test_progress_arrives_while_the_step_runs(start):
    call = start(steps.sleep, 60)
    eventually(call.progress)
    assert call.progress() == Progress(0, 60, "s", "asleep")
    assert call.poll() is None


def test_the_last_progress_arrives(start):
    call = start(steps.report_often, 5000)
    completed(call)
    assert call.progress() == Progress(5000, 5000, "poems", "poem 5000")


def test_the_job_folder_is_for_our_eyes_only_and_is_removed(start, tmp_path: Path):
    call = start(steps.sleep, 60)
    folder = tmp_path / "jobs" / "0"
    assert folder.stat().st_mode & 0o077 == 0
    call.close()
    assert not folder.exists()


LOCK = threading.Lock()


class Holder:
    def __init__(self, value: Any) -> None:
        self.poem = {"first": [1, value]}

    def write(self, config: Any) -> None: ...


def module_level(config: Any) -> None: ...


def unpicklable_cases() -> dict[str, tuple[Any, str]]:
    lock = threading.Lock()

    def closure(config: Any) -> Any:
        return lock

    def default(config: Any, *, key: Any = lock) -> None: ...

    def nested(config: Any) -> Any:
        return closure(config)

    script: dict[str, Any] = {"__name__": "__main__", "GUARD": lock}
    exec("def by_global(config):\n    return [GUARD for _ in config]", script)
    return {
        "closure": (closure, "function → closure variable 'lock' can't be sent there: it is lock"),
        "nested": (nested, "function → closure variable 'closure' → closure variable 'lock'"),
        "default": (default, "function → default of 'key'"),
        "global": (script["by_global"], "function → global variable 'GUARD'"),
        "partial": (functools.partial(module_level, key=lock), r"function.keywords\['key'\]"),
        "method": (Holder(lock).write, r"function.__self__.poem\['first'\]\[1\]"),
        "callable": (functools.partial(module_level, Holder(lock)), r"function.args\[0\].poem\['first'\]\[1\]"),
    }


@pytest.mark.parametrize("case", unpicklable_cases())
def test_what_cannot_travel_is_named_before_anything_starts(case: str):
    function, text = unpicklable_cases()[case]
    with pytest.raises(UnpicklableStepError, match=f"^poems@dev runs in a process of its own, but {text}"):
        check_sendable("poems@dev", function)


def test_a_config_that_cannot_travel_is_named(start, tmp_path: Path):
    with pytest.raises(UnpicklableStepError, match=r"but config\['rhymes'\]\.poem\['first'\]\[1\] can't be sent there"):
        start(steps.double, {"rhymes": Holder(LOCK)})
    assert not (tmp_path / "jobs").exists()
    (tmp_path / "jobs").mkdir()


def test_what_refers_to_itself_can_be_searched():
    loop: list[Any] = [LOCK]
    loop.insert(0, loop)
    with pytest.raises(UnpicklableStepError, match=r"config\[1\] can't be sent"):
        check_sendable("poems@dev", module_level, loop)


def test_what_can_travel_passes():
    for function in (module_level, Holder(1).write, functools.partial(module_level), "a:b", lambda config: config):
        check_sendable("poems@dev", function, Holder(2))


# The second name is also that of a module of Python's own, another one.
@pytest.mark.parametrize("name", ["made_up_pipeline", "this"])
def test_a_script_loaded_under_a_made_up_name_travels_by_value(start, tmp_path: Path, name: str):
    path = tmp_path / "pipeline.py"
    path.write_text(
        "from tests.execution.remote_steps import Count\ndef write(config):\n    return Count(value=helper(config))\n"
        "def helper(x):\n    return x + 1\n"
    )
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    try:
        assert completed(start(module.write, 1)).result["value"] == 2
        assert completed(start(functools.partial(module.write), 2)).result["value"] == 3
    finally:
        del sys.modules[name]


@pytest.mark.parametrize(
    ("own", "file", "text", "count"),
    [
        ("0::/job/1\n", "job/1/memory.events", "low 0\noom 3\noom_kill 2\n", 2),
        ("8:memory:/job\n0::/\n", "memory/job/memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 1\n", 1),
        ("9:cpu,cpuacct:/\n", "memory.events", "oom_kill 2\n", None),
        ("0::/other\n", "job/1/memory.events", "oom_kill 2\n", None),
    ],
)
def test_the_kernels_count_is_read_from_either_kind_of_control_group(tmp_path: Path, own, file, text, count):
    (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / file).write_text(text)
    (tmp_path / "own").write_text(own)
    assert post_mortem.count_oom_kills(tmp_path, tmp_path / "own") == count


@pytest.mark.parametrize(
    ("kills", "text"),
    [(1, "the kernel ran out of memory"), (0, "from outside; the kernel did not report"), (None, "dmesg")],
)
def test_a_kill_for_want_of_memory_is_told_if_the_kernel_tells(kills: int | None, text: str):
    state = JobState(running=False, signal=signal.SIGKILL)
    error = post_mortem.explain_death("poems@dev", state, log="", log_path="log", oom_kills=kills)
    assert text in str(error)


def test_a_job_folder_that_can_not_be_made_is_told_with_its_path(start, tmp_path: Path):
    (tmp_path / "jobs").write_text("a file")
    with pytest.raises(StoreError, match=f"{tmp_path}/jobs is a file where a folder should be"):
        start(steps.double, 1)
    (tmp_path / "jobs").unlink()
    (tmp_path / "jobs").mkdir()


def test_an_error_of_the_store_stays_one_when_there_is_no_room_for_the_exception(start):
    with pytest.raises(StorageFullError, match="no room for the poem"):
        completed(start(steps.find_no_room))


def test_a_job_folder_that_was_removed_is_told_and_not_taken_for_a_failed_start():
    state = JobState(running=False, exit_code=1, signal=None, reason=None)
    error = post_mortem.explain_death("a", state, log="", log_path="log", oom_kills=0, is_folder_gone=True)
    assert "its job folder was removed by somebody" in str(error)
    error = post_mortem.explain_death("a", state, log="", log_path="log", oom_kills=0)
    assert "exit code 1 and without an answer" in str(error)
