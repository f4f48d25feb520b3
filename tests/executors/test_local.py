from __future__ import annotations

import os
import signal
import subprocess
import sys
import uuid
from pathlib import Path

import pytest

from marin.errors import DeviceNotFoundError, StepError, StoreError
from marin.executors.executor import JobSpec
from marin.executors.local import LocalExecutor
from marin.executors.resources import ResourceConfig
from tests.executors.contract import ExecutorContract
from tests.executors.processes import MARK, PATIENCE, end_marked, eventually, marked, open_files, zombies_of

RUN = """
import os, signal, sys, time
from marin.executors.executor import JobSpec
from marin.executors.local import LocalExecutor

folder, command = sys.argv[1:]
executor = LocalExecutor()
job = executor.submit(JobSpec(name="poems", argv=("sh", "-c", command), env=dict(os.environ), cwd=folder,
                              log_path=folder + "/log", lease_seconds=3600))
while "ready" not in open(folder + "/log").read():
    time.sleep(0.01)
{extra}
while executor.wait(job, 0.1).running:
    executor.renew(job, 3600)
print(executor.poll(job), flush=True)
"""

TREE = "echo ready; trap '' TERM; (setsid sleep 1000 &); sleep 1000 & sleep 1000"


class TestLocalExecutor(ExecutorContract):
    @pytest.fixture
    def executor(self):
        return LocalExecutor()


@pytest.fixture
def start_run(tmp_path: Path):
    """Start a run in a process of its own: it, and the mark that its job and all of its children carry."""
    mark = uuid.uuid4().hex
    runs: list[subprocess.Popen[str]] = []

    def start(command: str = TREE, *, extra: str = "") -> tuple[subprocess.Popen[str], str]:
        """``extra``: what the run does once its job is ready."""
        argv = [sys.executable, "-c", RUN.format(extra=extra), str(tmp_path), command]
        run = subprocess.Popen(argv, env={**os.environ, MARK: mark}, stdout=subprocess.PIPE, text=True)
        runs.append(run)
        eventually(lambda: (tmp_path / "log").exists() and "ready" in (tmp_path / "log").read_text())
        return run, mark

    yield start
    # All at once: a child of the run may hold the pipe that communicate reads.
    end_marked(mark)
    for run in runs:
        run.communicate(timeout=PATIENCE)


def guard_of(run: subprocess.Popen[str]) -> int:
    children = subprocess.run(["ps", "-o", "pid=", "--ppid", str(run.pid)], capture_output=True, text=True, check=True)
    return int(children.stdout.split()[0])


def test_a_killed_run_leaves_no_process(start_run, tmp_path: Path):
    run, mark = start_run()
    eventually(lambda: len(marked(mark)) >= 5)
    run.kill()
    run.wait()
    eventually(lambda: marked(mark) == [])
    assert "its run is gone" in (tmp_path / "log").read_text()


def test_a_run_that_is_stopped_past_the_lease_leaves_no_job(start_run, tmp_path: Path):
    # It shortens its lease and stops itself: nobody outside can say that it is early enough.
    run, mark = start_run(extra="executor.renew(job, 0.5); os.kill(os.getpid(), signal.SIGSTOP)")
    # The run itself, stopped, and its guard, which waits to be reaped, are all that is left.
    eventually(lambda: set(marked(mark)) == {run.pid})
    run.send_signal(signal.SIGCONT)
    out, _ = run.communicate(timeout=PATIENCE)
    assert "reason='expired'" in out
    assert "silent for longer than its lease" in (tmp_path / "log").read_text()


def test_a_forked_child_of_the_run_delays_the_end_no_longer_than_the_lease(start_run):
    extra = "if os.fork() == 0: time.sleep(1000)\nexecutor.renew(job, 0.5); os.kill(os.getpid(), signal.SIGKILL)"
    run, mark = start_run(extra=extra)
    run.wait()
    eventually(lambda: len(marked(mark)) == 1)


def test_a_killed_guard_takes_the_job_along(start_run):
    run, mark = start_run(TREE.replace("setsid ", ""))
    os.kill(guard_of(run), signal.SIGKILL)
    out, _ = run.communicate(timeout=PATIENCE)
    assert "signal=<Signals.SIGKILL" in out
    assert "reason=None" in out
    eventually(lambda: marked(mark) == [])


def test_when_run_and_guard_are_killed_together_the_job_ends(start_run):
    run, mark = start_run("echo ready; exec sleep 1000")
    guard = guard_of(run)
    run.send_signal(signal.SIGSTOP)
    os.kill(guard, signal.SIGKILL)
    run.kill()
    run.wait()
    eventually(lambda: marked(mark) == [])


def test_a_thread_that_starts_a_job_may_end_before_the_job(start_run):
    extra = "import threading; t = threading.Thread(target=lambda: globals().update(job=executor.submit(JobSpec("
    extra += "name='n', argv=('sh', '-c', 'sleep 0.5; exit 7'), env=dict(os.environ), cwd=folder, "
    extra += "log_path=folder + '/log', lease_seconds=3600)))); t.start(); t.join()"
    run, _ = start_run("echo ready; sleep 0.1", extra=extra)
    out, _ = run.communicate(timeout=PATIENCE)
    assert "exit_code=7" in out


def test_a_guard_that_was_stopped_is_killed_in_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("marin.executors.local._UNRESPONSIVE_SECONDS", 0.2)
    mark = uuid.uuid4().hex
    executor = LocalExecutor()
    job = executor.submit(simple_spec(tmp_path, "sh", "-c", "sleep 1000", mark=mark))
    eventually(lambda: len(marked(mark)) >= 2)
    os.kill(int(job.partition("-")[0]), signal.SIGSTOP)
    executor.cancel(job, 0.1)
    assert executor.wait(job, PATIENCE).signal == signal.SIGKILL
    eventually(lambda: marked(mark) == [])


def test_nothing_leaks(tmp_path: Path):
    executor = LocalExecutor()
    executor.wait(executor.submit(simple_spec(tmp_path, "true")), PATIENCE)
    before, zombies = open_files(), zombies_of(os.getpid())
    for _ in range(10):
        executor.wait(executor.submit(simple_spec(tmp_path, "sh", "-c", "sleep 0.001 & exit 1")), PATIENCE)
    # Others in this process may have left something, which may go meanwhile.
    assert open_files() <= before
    assert set(zombies_of(os.getpid())) <= set(zombies)


def test_a_run_that_ignores_its_children_still_learns_how_they_end(start_run):
    extra = "signal.signal(signal.SIGCHLD, signal.SIG_IGN); open(folder + '/go', 'w').close()"
    run, _ = start_run("echo ready; until [ -e go ]; do sleep 0.01; done; exit 4", extra=extra)
    out, _ = run.communicate(timeout=PATIENCE)
    assert "exit_code=4" in out


def test_a_log_that_cannot_be_written_is_named(tmp_path: Path):
    (tmp_path / "logs").write_text("a file")
    before = open_files()
    with pytest.raises(StoreError, match=r"poems: its log .*/logs/poems.log can't be written"):
        LocalExecutor().submit(simple_spec(tmp_path, "true", log_path=str(tmp_path / "logs" / "poems.log")))
    assert open_files() <= before


def test_a_folder_that_is_not_there_is_named(tmp_path: Path):
    with pytest.raises(StepError, match=r"poems: no process can be started in .*/gone"):
        LocalExecutor().submit(simple_spec(tmp_path / "gone", "true", log_path=str(tmp_path / "log")))


def test_a_gpu_that_is_not_there_is_refused(tmp_path: Path):
    executor = LocalExecutor(devices=tmp_path, environ={})
    with pytest.raises(DeviceNotFoundError, match=r"cuda:0: no such device in this machine\. Use resources='cpu'"):
        executor.preflight(ResourceConfig.parse("cuda:0"))
    (tmp_path / "nvidia0").touch()
    (tmp_path / "nvidiactl").touch()
    executor.preflight(ResourceConfig.parse("cuda:0"))
    executor.preflight(ResourceConfig.parse("cuda"))
    with pytest.raises(DeviceNotFoundError, match="cuda:1: this machine has only cuda:0"):
        executor.preflight(ResourceConfig.parse("cuda:1"))


@pytest.mark.parametrize(("visible", "count"), [("", 0), ("-1", 0), ("0", 1), ("1,0", 2), ("0,-1,1", 1), ("GPU-8a", 1)])
def test_hidden_gpus_do_not_count(tmp_path: Path, visible: str, count: int):
    for index in range(2):
        (tmp_path / f"nvidia{index}").touch()
    executor = LocalExecutor(devices=tmp_path, environ={"CUDA_VISIBLE_DEVICES": visible})
    for index in range(count):
        executor.preflight(ResourceConfig.parse(f"cuda:{index}"))
    with pytest.raises(DeviceNotFoundError, match="CUDA_VISIBLE_DEVICES" if count == 0 else "has only"):
        executor.preflight(ResourceConfig.parse(f"cuda:{count}"))


@pytest.mark.parametrize("file", ["accel0", "vfio/0"])
def test_a_tpu_is_found_by_its_device_file(tmp_path: Path, file: str):
    executor = LocalExecutor(devices=tmp_path, environ={})
    with pytest.raises(DeviceNotFoundError, match="tpu: no such device"):
        executor.preflight(ResourceConfig.parse("tpu"))
    (tmp_path / file).parent.mkdir(exist_ok=True)
    (tmp_path / file).touch()
    executor.preflight(ResourceConfig.parse("tpu"))


def simple_spec(folder: Path, *argv: str, log_path: str | None = None, mark: str = "") -> JobSpec:
    return JobSpec(
        name="poems",
        argv=argv,
        env={"PATH": os.environ["PATH"], MARK: mark},
        cwd=str(folder),
        log_path=log_path or str(folder / "log"),
        lease_seconds=3600,
    )
