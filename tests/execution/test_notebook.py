"""Marin in a notebook: a real kernel executes real cells. It needs no network and none of the user's settings."""

import importlib
import os
import time
from pathlib import Path

import pytest

from tests.executors.processes import PATIENCE, eventually

DEFINE = """
import os, time
from dataclasses import dataclass
from pathlib import Path

from marin.execution import OUT, Artifact, apply, load, plan, remote, resolve, run
from marin.execution.progress import report

CALLS = []


@dataclass(frozen=True)
class Poems(Artifact):
    lines: int
    pid: int


def write(lines, out):
    CALLS.append(lines)
    for line in range(lines):
        report(line, lines, "lines")
    Path(out, "poem.txt").write_text("rose " * lines)
    return Poems(lines=lines, pid=os.getpid())


def count(poems):
    return Poems(lines=sum(len(Path(each, "poem.txt").read_text().split()) for each in poems), pid=os.getpid())


poems = apply("raw/poems", write, version="2026.07.01", artifact_type=Poems, lines=2000, out=OUT)
elsewhere = apply("raw/elsewhere", remote(write), version="2026.07.01", artifact_type=Poems, lines=3, out=OUT)
counted = apply("counted", remote(count), version="2026.07.01", artifact_type=Poems, poems=[poems, elsewhere])
"""

BUILD = """
made = run(poems, elsewhere, counted)
assert [each.lines for each in made] == [2000, 3, 2003]
assert made[0].pid == os.getpid() and made[1].pid != os.getpid()
assert CALLS == [2000]
"""

AGAIN = """
assert run(poems, elsewhere, counted) == made
assert CALLS == [2000]
"""

# A cell runs inside an event loop already, and may await.
ASYNC = """
import asyncio
await asyncio.sleep(0)
async def inside():
    return resolve(poems)
assert (await inside()) == made[0]
assert (await asyncio.to_thread(resolve, counted)) == made[2]
"""

FAIL = """
def fail(config):
    raise ValueError("no rhyme for orange")

from marin.errors import RunError
from marin.execution import ArtifactStep
try:
    resolve(ArtifactStep(name="raw/oranges", run=fail))
except RunError as fault:
    print("caught", fault)
"""


@pytest.fixture
def jupyter(tmp_path, monkeypatch):
    """The packages that drive a kernel, with all that it keeps in a folder of its own."""
    for name in ("IPYTHONDIR", "JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR"):
        monkeypatch.setenv(name, str(tmp_path / name.lower()))
    monkeypatch.setenv("JUPYTER_PLATFORM_DIRS", "1")
    monkeypatch.setenv("MARIN_PREFIX", str(tmp_path / "store"))
    monkeypatch.setenv("MARIN_DURABLE", "0")
    # Here and not at the top: they take seconds, and no other test needs them.
    return importlib.import_module


@pytest.fixture
def execute(jupyter, tmp_path):
    """Executes cells as a notebook: the outputs of each, by kind."""
    nbformat, nbclient = jupyter("nbformat"), jupyter("nbclient")

    def run_cells(*cells):
        notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
        client = nbclient.NotebookClient(
            notebook, timeout=PATIENCE, kernel_name="python3", resources={"metadata": {"path": str(tmp_path)}}
        )
        client.execute()
        return [cell.outputs for cell in notebook.cells]

    return run_cells


def streams(outputs, name):
    return "".join(output.text for output in outputs if output.output_type == "stream" and output.name == name)


def html(outputs):
    return "".join(output.data.get("text/html", "") for output in outputs if output.output_type == "execute_result")


def test_a_notebook_describes_builds_and_serves(execute):
    shown, planned, built, artifact, again, asynchronous, failed = execute(
        DEFINE + "poems", "plan(counted)", BUILD, "made[2]", AGAIN, ASYNC, FAIL
    )
    assert "raw/poems@2026.07.01" in html(shown)
    assert "3 to build" in html(planned)
    assert "counted/2026.07.01" in html(artifact)
    told = streams(built, "stderr")
    assert "counted@2026.07.01: built in" in told
    assert told.count("\n") < 40  # of 2,000 reports
    assert "all 3 steps are cached" in streams(again, "stderr")
    assert "nothing to build" in streams(asynchronous, "stderr")
    assert "no rhyme for orange" in streams(failed, "stdout")


def test_a_cell_that_is_edited_and_run_again_is_told_what_changed(execute):
    edited = DEFINE.replace("lines=2000", "lines=2001")
    *_, outputs = execute(DEFINE, "resolve(poems)", edited, "assert resolve(poems).lines == 2000")
    assert 'config["lines"]: 2000 → 2001' in streams(outputs, "stderr")


WAIT = """
def wait(marker):
    Path(marker).write_text(str(os.getpid()))
    for _ in range(360_000):
        time.sleep(0.01)

run(apply("raw/wait", WRAP(wait), version="2026.07.01", marker="MARKER"))
"""


@pytest.mark.parametrize("wrap", ["", "remote"])
def test_interrupting_the_kernel_stops_the_run_and_the_kernel_goes_on(jupyter, tmp_path, wrap):
    marker = tmp_path / "marker"
    manager = jupyter("jupyter_client").KernelManager(kernel_name="python3")
    manager.start_kernel(cwd=str(tmp_path))
    client = manager.client()
    try:
        client.start_channels()
        client.wait_for_ready(timeout=PATIENCE)
        assert answer(client, client.execute(DEFINE))["status"] == "ok"
        # A kernel throws away what comes in just after an error, unless it is told not to stop on that one.
        waiting = client.execute(WAIT.replace("WRAP", wrap).replace("MARKER", str(marker)), stop_on_error=False)
        pid = int(eventually(lambda: marker.exists() and marker.read_text()))
        assert (pid == manager.provisioner.process.pid) == (wrap == "")
        manager.interrupt_kernel()
        stopped = answer(client, waiting)
        assert (stopped["status"], stopped["ename"]) == ("error", "RunInterrupted")
        if wrap == "remote":
            eventually(lambda: not os.path.exists(f"/proc/{pid}"))
        record = Path(tmp_path / "store/raw/wait/2026.07.01/.artifact.json")
        assert "interrupted" in record.read_text()
        assert answer(client, client.execute("assert resolve(poems).lines == 2000"))["status"] == "ok"
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)


def answer(client, message):
    """The kernel's reply to ``message``."""
    deadline = time.monotonic() + PATIENCE
    while True:
        reply = client.get_shell_msg(timeout=max(1, deadline - time.monotonic()))
        if reply["parent_header"].get("msg_id") == message:
            return reply["content"]
