"""The ways in which runners of such systems have failed users, each tried against ours.

Which test holds which fault is written down in ``test_table.py``; here are those that no other file holds.
"""

from __future__ import annotations

import errno
import json
import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from marin.errors import RunError, StorageFullError
from marin.execution.planning import Decision
from marin.execution.runner import load, plan, resolve, run
from marin.storage.local import LocalStore
from tests.execution.pipelines import Poems, poems, report
from tests.executors.processes import PATIENCE, eventually
from tests.failures.processes import Script


@pytest.fixture
def script(tmp_path: Path):
    script = Script(tmp_path, "")
    yield script
    script.close()


def test_a_shell_that_outlives_its_killed_run_can_not_change_the_finished_artifact(script: Script):
    """It is in a session of its own, deaf to signals, and would write to the address as well as to its own folder."""
    body = """
        def build(config):
            out = Path(config["output_path"])
            address = FOLDER / "store/raw/poems/2026.07.01"
            if os.environ["ROUND"] == "1":
                late = f"trap '' TERM HUP INT; until [ -e {FOLDER}/late ]; do sleep 0.02; done; "
                late += f"echo late >> {FOLDER}/marks; "
                late += f"echo late > {address}/poem; echo late > {out}/poem"
                subprocess.Popen(["setsid", "sh", "-c", late])
                mark("spawned")
                time.sleep(600)
            (out / "poem").write_text("whole")

        run(ArtifactStep(name="raw/poems", version="2026.07.01", run=remote(build),
            build_config=lambda ctx: {"output_path": ctx.output_path}), options=options)
        """
    one = script.start(body, ROUND="1")
    eventually(lambda: script.marks == ["spawned"])
    one.kill()
    one.wait()
    other = script.start(body, ROUND="2")
    assert script.ended(other) == 0, script.said(other)
    (script.folder / "late").touch()
    script.wait_for_no_process()
    assert script.marks == ["spawned"]  # the shell was ended before it came to that
    assert (script.store / "raw/poems/2026.07.01/poem").read_text() == "whole"


def test_what_a_step_wrote_before_it_failed_is_served_to_nobody(options, told):
    step = poems(run=write_half_and_fail)
    with pytest.raises(RunError, match="ink ran out"):
        run(report(step), options=options, reporter=told)
    assert told.blocks == {"reports/words@2026.07.01": "raw/poems@2026.07.01"}
    assert plan(report(step), options=options).steps[step.id].decision is Decision.BUILD
    assert not Path(options.prefix, step.id.address, "poems.txt").exists()


def write_half_and_fail(config):
    Path(config["output_path"], "poems.txt").write_text("half")
    raise OSError(errno.EIO, "ink ran out")


def test_times_of_files_decide_nothing(options, built):
    steps = (poems(), report(poems()))
    run(*steps, options=options)
    for seconds in (0, 4_000_000_000):
        for place in Path(options.prefix).rglob("*"):
            os.utime(place, (seconds, seconds))
        run(*steps, options=options)
    assert len(built) == 2


def test_what_is_built_is_found_without_any_listing(options, monkeypatch):
    """A network disk or a bucket may list what is gone, and not what is there. One small file tells the truth."""
    made = resolve(report(poems()), options=options)

    def stale(*arguments, **more):
        raise AssertionError("a listing was asked for")

    for name in ("listdir", "scandir"):
        monkeypatch.setattr(os, name, stale)
    monkeypatch.setattr(LocalStore, "list", stale)
    assert resolve(report(poems()), options=options) == made
    assert load(poems(), options=options) == Poems(lines=3)


def test_a_run_needs_no_database_and_no_server(script: Script):
    one = script.start(
        """
        def build(config):
            pass
        run(ArtifactStep(name="raw/poems", version="2026.07.01", run=remote(build)), options=options)
        run(ArtifactStep(name="raw/poems", version="2026.07.01", run=remote(build)), options=options)
        print(sorted({"sqlite3", "asyncio", "http.client", "socketserver"} & set(sys.modules)))
        """
    )
    assert script.ended(one) == 0, script.said(one)
    assert script.said(one).splitlines()[-1] == "[]"


def test_a_disk_that_is_really_full_is_said_with_the_path_and_leaves_the_store_usable(script: Script):
    """A file system of 4 MB in a mount namespace of the child: it is gone with it."""
    (script.folder / "store").mkdir()
    body = """
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(FOLDER / "store")], check=True)

        def fill(config):
            (Path(config["output_path"]) / "big").write_bytes(bytes(config["bytes"]))

        def step(bytes, version):
            return ArtifactStep(name="raw/big", version=version, run=WHERE(fill),
                build_config=lambda ctx: {"output_path": ctx.output_path, "bytes": bytes})

        for WHERE in (lambda function: function, remote):
            try:
                run(step(50_000_000, "2026.07.01"), options=options)
            except Exception as fault:
                print("told:", type(fault).__name__, str(fault).replace(chr(10), " "))
            # What the failed attempt wrote is kept for whoever looks for the reason: here it is what fills the disk.
            for left in (FOLDER / "store/raw/big/2026.07.01").glob(".build-*"):
                subprocess.run(["rm", "-r", str(left)], check=True)
        done, = run(step(1_000_000, "2026.07.02"), options=options)
        print("then:", done.path)
        """
    namespace = ["unshare", "--mount", "--map-root-user"]
    if subprocess.run([*namespace, "true"], capture_output=True, check=False).returncode:
        pytest.skip("this machine lets nobody but root mount, also not in a namespace")
    one = script.start(body, inside=namespace)
    assert script.ended(one) == 0, script.said(one)
    told = [line for line in script.said(one).splitlines() if line.startswith("told:")]
    assert len(told) == 2, script.said(one)
    for line in told:
        assert "RunError" in line
        assert "No space left on device" in line
    assert "then: " in script.said(one)


def test_a_file_that_may_not_grow_further_is_told_as_a_full_store(tmp_path: Path):
    """The same without privileges: a limit of the process stands for the end of the disk."""
    child = os.fork()
    if child == 0:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
        try:
            LocalStore(tmp_path).write("a", bytes(5000))
        except StorageFullError:
            os._exit(7)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7


def test_a_folder_without_permission_is_said_and_what_is_built_is_still_served(script: Script):
    """As a user who is not root, of whom a mode of a folder is no hindrance."""
    body = """
        def build(config):
            (Path(config["output_path"]) / "poem").write_text("1")

        def step(version):
            return ArtifactStep(name="raw/poems", version=version, run=build,
                build_config=lambda ctx: {"output_path": ctx.output_path})

        run(step("2026.07.01"), options=options)  # imports all that it needs, while it may read it
        options = RunOptions(prefix=os.environ["STORE"], durable=False)
        if os.getuid() == 0:
            os.setgid(65534)
            os.setuid(65534)
        os.chdir("/")
        run(step("2026.07.01"), options=options)
        os.chmod(options.prefix + "/raw/poems", 0o555)
        run(step("2026.07.01"), options=options)
        print("served:", load(step("2026.07.01"), options=options).path)
        try:
            run(step("2026.07.02"), options=options)
        except Exception as fault:
            print("told:", type(fault).__name__, str(fault).replace(chr(10), " "))
        os.chmod(options.prefix + "/raw/poems", 0o755)
        run(step("2026.07.02"), options=options)
        print("then built")
        """
    # Not below the test's own folder, into which only its owner may look.
    with tempfile.TemporaryDirectory() as open_to_all:
        os.chmod(open_to_all, 0o777)
        one = script.start(body, STORE=open_to_all)
        script.ended(one)
    assert one.returncode == 0, script.said(one)
    said = script.said(one)
    assert "served: " in said
    assert "can't be written (Permission denied)" in said
    assert "/raw/poems/2026.07.02" in said
    assert "then built" in said


def test_after_kill_9_no_command_says_that_it_still_runs(script: Script):
    one = script.start(
        """
        def build(config):
            mark("began")
            time.sleep(600)
        run(ArtifactStep(name="raw/poems", version="2026.07.01", run=build), options=options)
        """
    )
    eventually(lambda: script.marks == ["began"])
    one.kill()
    one.wait()
    command = [sys.executable, "-m", "marin.cli.main", "ls", "--json", "--prefix", str(script.store)]
    listed = json.loads(subprocess.run(command, capture_output=True, check=True, timeout=PATIENCE).stdout)
    assert "interrupted" in json.dumps(listed)
    assert "building" not in json.dumps(listed)
