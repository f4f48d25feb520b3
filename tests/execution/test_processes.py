"""Several runs at once, and runs that are killed, stopped or interrupted: each a real process."""

import contextlib
import hashlib
import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from tests.executors.processes import PATIENCE

ROOT = Path(__file__).parents[2]

SCRIPT = """
import os, sys, time
from pathlib import Path
from marin.execution import Artifact, ArtifactStep, RunOptions, remote
from marin.execution.runner import run

STORE, LEASE = sys.argv[1], float(sys.argv[2])

def mark(config, text):
    with open(f"{STORE}.log", "a") as file:
        file.write(f"{text} {os.getpid()}\\n")

def slow(config):
    mark(config, "start")
    Path(config["output_path"], "half").write_text("half")
    deadline = time.monotonic() + config["seconds"]
    while time.monotonic() < deadline and not os.path.exists(f"{STORE}.go"):
        time.sleep(0.02)
    Path(config["output_path"], "whole").write_text("whole")
    mark(config, "end")

def children(config):
    import subprocess
    child = subprocess.Popen(["sleep", "1000"])
    mark(config, f"child:{child.pid}")
    slow(config)

def step(function, version="2026.07.01", seconds=3600, **remote_options):
    # Known only when the step runs: how long it takes is not identity.
    return ArtifactStep(
        name="raw/slow", version=version, run=remote(function, **remote_options) if REMOTE else function,
        build_config=lambda ctx: {"output_path": ctx.output_path, "seconds": ctx.runtime_arg("seconds")},
        runtime_args={"seconds": seconds},
    )

REMOTE = sys.argv[3] == "process"
options = RunOptions(prefix=STORE, lease_seconds=LEASE)
"""

RUN = "run(step(slow), options=options)\nprint('done')\n"


class Runs:
    """Starts runs of one script over one store, and ends what is left of them."""

    def __init__(self, folder):
        self.store = str(folder / "store")
        self.folder = folder
        self.started = []
        self.printed = {}

    def start(self, body=RUN, *, where="process", lease=3600.0):
        script = self.folder / "pipeline.py"  # one name: the module of a step function is part of its recipe
        printed = self.folder / f"{len(self.started)}.out"
        script.write_text(SCRIPT + textwrap.dedent(body))
        with printed.open("w") as output:  # not a pipe: an orphan must not keep the test waiting
            process = subprocess.Popen(
                [sys.executable, script, self.store, str(lease), where],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env={**os.environ, "PYTHONPATH": str(ROOT / "src"), "MARIN_TEST_STORE": self.store},
            )
        self.started.append(process)
        self.printed[process.pid] = printed
        return process

    def go(self):
        Path(f"{self.store}.go").write_text("")

    @property
    def log(self):
        try:
            return Path(f"{self.store}.log").read_text().splitlines()
        except FileNotFoundError:
            return []

    @property
    def record(self):
        return json.loads(Path(self.store, "raw/slow/2026.07.01/.artifact.json").read_text())

    def wait_for_log(self, text, count=1):
        wait_until(lambda: sum(line.startswith(text) for line in self.log) >= count, f"{text} in {self.log}")

    def wait_for_print(self, process, text):
        wait_until(lambda: text in self.printed[process.pid].read_text(), f"{text} printed by {process.pid}")

    def processes(self):
        """Every process that any of the runs, or what they started, left behind."""
        found = []
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                environ = Path(f"/proc/{pid}/environ").read_bytes()
                state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
            except OSError:
                continue
            if f"MARIN_TEST_STORE={self.store}".encode() in environ.split(b"\0") and state != "Z":
                found.append(int(pid))
        return found

    def ended(self, process, seconds=PATIENCE):
        """What a run has printed, once it has ended."""
        process.wait(timeout=seconds)
        return self.printed[process.pid].read_text()

    def wait_for_no_process(self):
        wait_until(lambda: not self.processes(), "processes are left")


def wait_until(condition, what, seconds=PATIENCE):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"waited {seconds} s for: {what}"
        time.sleep(0.02)


@pytest.fixture
def runs(tmp_path):
    runs = Runs(tmp_path)
    yield runs
    for process in runs.started:
        process.kill()
        process.wait()
    for pid in runs.processes():
        with contextlib.suppress(ProcessLookupError):  # it may have ended by itself meanwhile
            os.kill(pid, signal.SIGKILL)


WHERE = pytest.mark.parametrize("where", ["thread", "process"])


@WHERE
def test_two_processes_build_it_once_and_both_get_it(runs, where):
    one = runs.start(where=where)
    runs.wait_for_log("start")
    other = runs.start(where=where)
    runs.wait_for_print(other, "waiting")
    runs.go()
    outputs = [runs.ended(one), runs.ended(other)]
    assert [process.returncode for process in (one, other)] == [0, 0], outputs
    assert [line.split()[0] for line in runs.log] == ["start", "end"]
    assert "waiting" in outputs[1]
    assert f"pid {one.pid}" in outputs[1]


@WHERE
def test_a_killed_builder_is_replaced_at_once(runs, where):
    one = runs.start(where=where)
    runs.wait_for_log("start")
    one.kill()
    one.wait()
    runs.start(where=where)
    runs.wait_for_log("start", count=2)  # its lease has an hour left
    runs.go()
    assert "done" in runs.ended(runs.started[1])
    runs.wait_for_no_process()


def test_one_that_waits_takes_over_when_the_builder_is_killed(runs):
    one = runs.start()
    runs.wait_for_log("start")
    other = runs.start()
    runs.wait_for_print(other, "waiting")
    one.kill()
    one.wait()
    runs.wait_for_log("start", count=2)
    runs.go()
    assert "takes over" in runs.ended(other)
    assert runs.record["state"] == "built"


def test_the_half_built_is_never_served(runs):
    one = runs.start()
    runs.wait_for_log("start")
    address = Path(runs.store, "raw/slow/2026.07.01")
    assert not address.joinpath("half").exists()
    reader = runs.start(
        """
        from marin.errors import NotBuiltError
        from marin.execution.runner import load
        try:
            load(step(slow), options=options)
        except NotBuiltError as error:
            print("refused:", error)
        """
    )
    assert "refused: raw/slow@2026.07.01 has no complete build: it is building" in runs.ended(reader)
    one.kill()


@WHERE
def test_a_builder_that_was_stopped_past_its_lease_cannot_publish(runs, where):
    one = runs.start(where=where, lease=6.0)
    runs.wait_for_log("start")
    os.kill(one.pid, signal.SIGSTOP)
    other = runs.start(where=where)
    runs.wait_for_log("start", count=2)
    holder = runs.record["attempt"]["build_id"]
    runs.go()
    assert "done" in runs.ended(other)
    built = runs.record
    assert built["build"]["build_id"] == holder
    os.kill(one.pid, signal.SIGCONT)
    output = runs.ended(one)
    assert one.returncode == 0, output  # it gets what the other built
    assert runs.record == built


def test_a_steps_process_ends_itself_when_its_runner_is_stopped_past_the_lease(runs):
    one = runs.start("run(step(children), options=options)", lease=6.0)
    runs.wait_for_log("start")
    os.kill(one.pid, signal.SIGSTOP)
    wait_until(lambda: runs.processes() == [one.pid], "the step's processes to end")


def test_a_steps_processes_end_with_a_killed_runner(runs):
    one = runs.start("run(step(children), options=options)")
    runs.wait_for_log("start")
    assert len(runs.processes()) >= 3  # the runner, the step, its child; and what guards them
    one.kill()
    one.wait()
    runs.wait_for_no_process()


@WHERE
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interrupted_run_ends_its_steps_and_says_so(runs, where, number, code):
    one = runs.start(
        """
        from marin.errors import RunInterrupted
        try:
            run(step(children), options=options)
        except RunInterrupted as stopped:
            print(stopped)
            os._exit(stopped.exit_code) if not REMOTE else sys.exit(stopped.exit_code)
        """,
        where=where,
    )
    runs.wait_for_log("start")
    one.send_signal(number)
    output = runs.ended(one)
    assert one.returncode == code, output
    assert runs.record["state"] == "failed"
    assert "interrupted" in runs.record["attempt"]["error"]
    if where == "process":
        runs.wait_for_no_process()


def test_a_second_signal_kills_a_step_that_does_not_listen(runs):
    one = runs.start(
        """
        def deaf(config):
            import signal
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            slow(config)
        run(step(deaf, grace=3600), options=options)
        """
    )
    runs.wait_for_log("start")
    one.send_signal(signal.SIGINT)
    runs.wait_for_print(one, "stopping")
    one.send_signal(signal.SIGINT)
    runs.ended(one)  # and not after its grace
    assert one.returncode in (130, -signal.SIGINT)
    runs.wait_for_no_process()


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("import ctypes; ctypes.string_at(0)", ["SIGSEGV"]),
        ("os.kill(os.getpid(), 9)", ["SIGKILL", "memory"]),
        ("os._exit(3)", ["3"]),
        ("sys.exit('cannot go on')", ["cannot go on"]),
        ("raise ValueError('bad verse')", ["ValueError", "bad verse", "pipeline.py:", "in die"]),
    ],
)
def test_a_dying_process_is_a_readable_failure_of_that_step_alone(runs, body, words):
    one = runs.start(
        f"""
        def die(config):
            print("last words", flush=True)
            {body}

        other = ArtifactStep(name="raw/other", version="2026.07.01", run=remote(slow),
            build_config=lambda ctx: {{"output_path": ctx.output_path, "seconds": 0.0}})
        run(step(die), other, options=options)
        """
    )
    output = runs.ended(one)
    assert one.returncode == 1, output
    for word in words:
        assert word in output
    assert "1 of 2 steps failed" in output
    assert json.loads(Path(runs.store, "raw/other/2026.07.01/.artifact.json").read_text())["state"] == "built"
    log = Path(runs.store, runs.record["attempt"]["log"])
    assert "last words" in log.read_text()
    assert str(log) in output


def test_a_resumable_step_goes_on_from_what_a_killed_one_left(runs):
    body = """
        def resumable(config):
            if os.path.exists(os.path.join(config["output_path"], "half")):
                mark(config, "resumed")
            else:
                slow(config)
        run(step(resumable, resumable=True), options=options)
    """
    one = runs.start(body)
    runs.wait_for_log("start")
    one.kill()
    one.wait()
    runs.wait_for_no_process()
    other = runs.start(body)
    output = runs.ended(other)
    assert other.returncode == 0, output
    assert [line.split()[0] for line in runs.log] == ["start", "resumed"]
    assert Path(runs.store, "raw/slow/2026.07.01/half").read_text() == "half"


APPENDING = """
    def write_on(path):
        with open(path, "a") as out:
            for number in range(400_000):
                print("a line", number, file=out, flush=True)
                time.sleep(0.01)

    def appending(config):
        path = Path(config["output_path"], "half")
        if path.exists():
            mark(config, "resumed")
            return
        import multiprocessing
        child = multiprocessing.get_context("fork").Process(target=write_on, args=(path,))
        child.start()
        while not path.exists() or not path.stat().st_size:
            time.sleep(0.01)
        mark(config, f"guard:{os.getppid()}")
        child.join()

    run(step(appending, resumable=True), options=options)
"""


@pytest.mark.parametrize("strike", [signal.SIGKILL, signal.SIGSTOP])
def test_nobody_writes_into_partial_work_that_was_taken_over(runs, strike):
    one = runs.start(APPENDING)
    runs.wait_for_log("guard")
    guard = int(runs.log[0].partition(":")[2].split()[0])
    os.kill(guard, strike)  # so that nobody ends what the step has started
    one.kill()
    one.wait()
    other = runs.start(APPENDING)
    output = runs.ended(other)
    assert other.returncode == 0, output
    assert "has left behind" in output
    address = Path(runs.store, "raw/slow/2026.07.01")
    manifest = json.loads((address / ".artifact.json").read_text())["build"]["manifest"]
    listed = {entry["path"]: entry["sha256"] for entry in manifest["listed"]}
    assert listed == {"half": hashlib.sha256((address / "half").read_bytes()).hexdigest()}
    runs.wait_for_no_process()
    assert listed == {"half": hashlib.sha256((address / "half").read_bytes()).hexdigest()}


def test_what_a_step_started_in_another_session_ends_when_its_guard_is_killed(runs):
    one = runs.start(
        """
        def leaving(config):
            import subprocess
            subprocess.Popen(["sleep", "1000"], start_new_session=True)
            mark(config, f"guard:{os.getppid()}")
            slow(config)
        run(step(leaving), options=options)
        """
    )
    runs.wait_for_log("guard")
    os.kill(int(runs.log[0].partition(":")[2].split()[0]), signal.SIGKILL)
    runs.ended(one)
    runs.wait_for_no_process()


def test_partial_work_of_another_recipe_is_not_taken_over(runs):
    body = """
        def resumable(config):
            mark(config, "resumed" if os.path.exists(os.path.join(config["output_path"], "half")) else "fresh")
            slow(config)
        one = step(resumable, resumable=True)
        from dataclasses import replace
        old = one.build_config
        one = replace(one, build_config=lambda ctx: {"n": N, **old(ctx)})
        run(one, options=options)
    """
    one = runs.start(body.replace("N,", "1,"))
    runs.wait_for_log("start")
    one.kill()
    one.wait()
    runs.wait_for_no_process()
    runs.go()
    output = runs.ended(runs.start(body.replace("N,", "2,")))
    assert "starts anew" in output
    assert [line.split()[0] for line in runs.log if line.split()[0] != "start"] == ["fresh", "fresh", "end"]


def test_a_builder_killed_half_way_through_publishing_is_recovered(runs):
    body = """
        moves = 0
        real = os.rename
        def rename(*args, **kwargs):
            global moves
            if str(args[0]).endswith(("/whole", "/half")):
                moves += 1
                if moves == 2:
                    os.kill(os.getpid(), 9)
            return real(*args, **kwargs)
        os.rename = rename
        run(step(slow, seconds=0.0), options=options)
    """
    one = runs.start(body, where="thread")
    runs.ended(one)
    address = Path(runs.store, "raw/slow/2026.07.01")
    assert one.returncode == -signal.SIGKILL
    assert runs.record["state"] == "building"
    moved = {"half", "whole"} & set(os.listdir(address))
    assert len(moved) == 1, "the test must kill it between two moves"
    other = runs.start(where="thread")
    runs.go()
    assert "done" in runs.ended(other)
    assert {"half", "whole"} <= set(os.listdir(address))
    assert runs.record["state"] == "built"


def test_a_read_only_store_still_serves(runs):
    runs.go()
    runs.ended(runs.start())
    again = runs.start(
        """
        import builtins, errno
        def refuse(*args, **kwargs):
            raise OSError(errno.EROFS, "Read-only file system", str(args[0]))
        real = os.open
        def read_only(path, flags, *rest, **more):
            writes = flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)
            return refuse(path) if writes and STORE in str(path) else real(path, flags, *rest, **more)
        os.open, os.mkdir, os.rename, os.replace, os.unlink, os.rmdir = read_only, *[refuse] * 5
        run(step(slow), options=options)
        print("served")
        try:
            run(step(slow, version="2026.07.02"), options=options)
        except Exception as error:
            print(f"refused: {type(error).__name__}: {error}")
        """
    )
    output = runs.ended(again)
    assert "served" in output
    assert "refused: " in output
    assert runs.store in output
    assert "read-only" in output.lower()


def test_while_a_dev_version_is_rebuilt_the_previous_build_is_served(runs):
    runs.go()
    runs.ended(runs.start("run(step(slow, 'dev'), options=options)"))
    os.unlink(f"{runs.store}.go")
    rebuild = runs.start("run(step(slow, 'dev'), options=options)")
    runs.wait_for_log("start", count=2)
    reader = """
        from marin.execution.runner import load
        made = load(step(slow, "dev"), options=options)
        print("read", Path(made.path, "whole").read_text())
    """
    assert "read whole" in runs.ended(runs.start(reader))
    listed = subprocess.run(
        [sys.executable, "-m", "marin.cli.main", "ls", "--prefix", runs.store],
        capture_output=True,
        text=True,
        check=True,
    )
    assert "rebuilding" in listed.stdout
    assert f"by pid {rebuild.pid}" in listed.stdout
    rebuild.kill()
    rebuild.wait()
    assert "read whole" in runs.ended(runs.start(reader))


def test_a_dev_build_is_not_removed_under_its_reader(runs):
    runs.go()
    consumer = """
        def consume(config):
            mark(config, "start-consuming")
            deadline = time.monotonic() + 3600
            while not os.path.exists(f"{STORE}.enough") and time.monotonic() < deadline:
                time.sleep(0.02)
            mark(config, f"read-{Path(config['source'], 'whole').read_text()}")
        source = step(slow, "dev")
        run(ArtifactStep(name="reader", version="dev", run=remote(consume), deps=(source,),
            build_config=lambda ctx: {"source": ctx.artifact_path(source)}), options=options)
    """
    reader = runs.start(consumer)
    runs.wait_for_log("start-consuming")
    for _ in range(3):
        runs.ended(runs.start("run(step(slow, 'dev'), options=options)"))
    Path(f"{runs.store}.enough").write_text("")
    runs.ended(reader)
    assert reader.returncode == 0
    assert any(line.startswith("read-whole") for line in runs.log)


def test_the_plan_after_a_kill_does_not_speak_of_waiting(runs):
    killed = runs.start("run(step(slow, resumable=True), options=options)")
    runs.wait_for_log("start")
    killed.kill()
    killed.wait()
    planned = runs.ended(
        runs.start(
            """
            from marin.execution.runner import plan
            for planned in plan(step(slow, resumable=True), options=options).steps.values():
                print("reason:", planned.reason)
            """
        )
    )
    assert "was killed; goes on from what it left" in planned
    assert "will wait" not in planned


@WHERE
def test_a_step_that_runs_itself_is_told_so(runs, where):
    one = runs.start(
        """
        def again(config):
            run(step(again), options=options)
        run(step(again), options=options)
        """,
        where=where,
    )
    assert "would wait for itself" in runs.ended(one)
    assert one.returncode == 1


@WHERE
def test_a_step_of_a_script_may_use_process_pools(runs, where):
    # Many, as a worker that does not end when its pool tells it to hangs only now and then.
    one = runs.start(
        """
        import multiprocessing

        def square(number):
            return number * number

        def pooled(config):
            for _ in range(10):
                with multiprocessing.get_context("fork").Pool(2) as pool:
                    total = sum(pool.map(square, range(4)))
            mark(config, f"sum:{total}")

        run(step(pooled), options=options)
        print("done")
        """,
        where=where,
    )
    assert "done" in runs.ended(one)
    assert any(line.startswith("sum:14") for line in runs.log)
