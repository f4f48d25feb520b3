"""A run on several hosts: the same script in several processes, over one store."""

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from marin.errors import HostLostError, StepError
from marin.execution.crew import ALONE_SECONDS, Leader
from marin.execution.identity import ArtifactId
from marin.executors.hosts import HostPlace
from tests.execution.records import attempt
from tests.executors.hosts import free_port
from tests.executors.processes import PATIENCE, eventually

ROOT = Path(__file__).parents[2]

SCRIPT = """
import os, sys, time
from dataclasses import dataclass
from pathlib import Path
from marin.execution import Artifact, ArtifactStep, RunOptions, remote
from marin.execution.runner import run

STORE, VERSION, MODE = sys.argv[1:]
LEASE = 8.0 if MODE == "long" else 60.0
HOST = os.environ.get("MARIN_HOST", "0")

@dataclass(frozen=True)
class Words(Artifact):
    count: int

def mark(text):
    with open(f"{STORE}.log", "a") as file:
        file.write(f"{text} on {HOST} of {os.environ.get('MARIN_HOSTS')}\\n")

def write(config):
    mark("write")
    Path(config["output"], "words").write_text("so much depends")
    return Words(count=3)

def together(config):
    me = os.environ["MARIN_HOST"]
    mark("together")
    failed_before = Path(f"{STORE}.failed").exists()
    if me == "1" and (MODE == "fails" or (MODE == "fails once" and not failed_before)):
        Path(f"{STORE}.failed").touch()
        raise ValueError("no such shard")
    words = Path(config["words"], "words").read_text().split()
    Path(config["output"], f"host-{me}").write_text(words[int(me)])
    if MODE == "nested":
        inner = ArtifactStep(
            name=f"inner-{me}", version=VERSION, artifact_type=Words, run=repeat, build_config=lambda ctx: {"n": 1}
        )
        run(inner, options=RunOptions(prefix=STORE))
    began = time.monotonic()
    is_long = {"waits": 3600, "fails": 3600, "long": 1.5 * LEASE}.get(MODE, 0)
    while not all(Path(config["output"], f"host-{n}").exists() for n in (0, 1)) or time.monotonic() - began < is_long:
        assert time.monotonic() - began < 3600
        time.sleep(0.02)  # a poll: the other host is a process of its own
    return Words(count=int(me) + 10)

def repeat(config):
    mark("last")
    return Words(count=config["n"])

words = ArtifactStep(
    name="raw/words", version=VERSION, artifact_type=Words, run=remote(write),
    build_config=lambda ctx: {"output": ctx.output_path},
)
joint = ArtifactStep(
    name="joint", version=VERSION, artifact_type=Words, deps=(words,),
    run=remote(together, all_hosts=True, grace=5, retries=1, retry_on="error" if MODE == "fails once" else "crash"),
    build_config=lambda ctx: {"output": ctx.output_path, "words": ctx.artifact_path(words)},
)
last = ArtifactStep(
    name="last", version=VERSION, artifact_type=Words, run=repeat, deps=(joint,),
    build_config=lambda ctx: {"n": ctx.resolved(joint).count},
)
if MODE == "other" and HOST == "1":
    last = words
if MODE == "words":
    joint = last = words
made = run(last, joint, options=RunOptions(prefix=STORE, lease_seconds=LEASE))
print([(each.count, sorted(name for name in os.listdir(each.path) if name[0] != ".")) for each in made], flush=True)
"""


MARIN_RUN = ("-m", "marin.cli.main", "run")


def start(store, version="2026.07.01", mode="", hosts=2, command=(), edited=SCRIPT, elsewhere=None, **variables):
    """``edited`` is the script as the other hosts than host 0 have it, ``elsewhere`` their store."""
    scripts = [store.parent / str(host) / "script.py" for host in range(hosts)]
    for host, script in enumerate(scripts):
        script.parent.mkdir(parents=True, exist_ok=True)
        script.write_text(edited if host else SCRIPT)
    stores = [store, *[elsewhere or store] * (hosts - 1)]
    script_follows = ("--",) if command else ()
    address = f"127.0.0.1:{free_port()}"
    return [
        subprocess.Popen(
            [
                sys.executable,
                *command,
                str(scripts[host]),
                *script_follows,
                str(stores[host]),
                version,
                mode,
            ],
            cwd=ROOT,
            env={
                **os.environ,
                "MARIN_HOSTS": str(hosts),
                "MARIN_HOST": str(host),
                "MARIN_COORDINATOR": address,
                **variables,
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for host in range(hosts)
    ]


def ended(processes):
    said = [process.communicate(timeout=PATIENCE) for process in processes]
    return [process.returncode for process in processes], [out for out, _ in said], [err for _, err in said]


def marks(store):
    return sorted(Path(f"{store}.log").read_text().splitlines())


def wait_for(path, text):
    eventually(lambda: path.exists() and path.read_text().count(text) >= 2)


@pytest.mark.parametrize("version", ["2026.07.01", "dev"])
def test_all_hosts_make_one_artifact_under_one_lease(version, tmp_path):
    store, scratch = tmp_path / "store", tmp_path / "scratch"
    scratch.mkdir()
    codes, out, err = ended(start(store, version, TMPDIR=str(scratch)))
    assert list(scratch.iterdir()) == []
    assert codes == [0, 0], err
    assert out[0] == out[1] == "[(10, []), (10, ['host-0', 'host-1'])]\n"
    assert "host 1 of 2 takes part: host 0 tells how the run goes" in err[1]
    assert marks(store) == ["last on 0 of 2", "together on 0 of 2", "together on 1 of 2", "write on 0 of "]
    record = json.loads((store / "joint" / version / ".artifact.json").read_text())
    assert record["state"] == "built"
    assert record["build"]["result"] == {"count": 10}
    logs = [path.name for path in (store / "joint" / version / ".logs").iterdir()]
    assert len(logs) == 2
    assert sum(".host-1." in name for name in logs) == 1


def test_what_is_made_is_not_made_again(tmp_path):
    store = tmp_path / "store"
    assert ended(start(store))[0] == [0, 0]
    before = marks(store)
    codes, out, err = ended(start(store))
    assert codes == [0, 0], err
    assert out[0] == out[1]
    assert marks(store) == before


def test_what_failed_on_one_host_is_tried_again_on_all(tmp_path):
    store = tmp_path / "store"
    codes, out, err = ended(start(store, mode="fails once"))
    assert codes == [0, 0], err
    assert out[0] == out[1] == "[(10, []), (10, ['host-0', 'host-1'])]\n"
    assert marks(store)[1:-1] == ["together on 0 of 2"] * 2 + ["together on 1 of 2"] * 2


@pytest.mark.parametrize("mode", ["long", "nested"])
def test_a_step_of_all_hosts_may_take_longer_than_a_lease_and_run_a_pipeline_of_its_own(mode, tmp_path):
    store = tmp_path / "store"
    codes, out, err = ended(start(store, mode=mode))
    assert codes == [0, 0], err
    assert out[0] == out[1] == "[(10, []), (10, ['host-0', 'host-1'])]\n"
    assert [(store / f"inner-{host}").exists() for host in (0, 1)] == [mode == "nested"] * 2


def test_what_fails_on_one_host_fails_on_all(tmp_path):
    codes, _, err = ended(start(tmp_path / "store", mode="fails"))
    assert codes == [1, 1]
    for each in err:
        assert "joint@2026.07.01: StepError: host 1: ValueError: no such shard" in each
    record = json.loads((tmp_path / "store" / "joint" / "2026.07.01" / ".artifact.json").read_text())
    assert record["state"] == "failed"


def test_each_host_shows_what_failed(tmp_path):
    codes, _, err = ended(start(tmp_path / "store", mode="fails", command=MARIN_RUN))
    assert codes == [1, 1]
    for each in err:
        assert "StepError: host 1: ValueError: no such shard" in each
        assert "Traceback" not in each.partition("error: ")[2]


@pytest.mark.parametrize("host", [0, 1])
def test_a_signal_to_one_runner_ends_all_processes(host, tmp_path):
    store = tmp_path / "store"
    processes = start(store, mode="waits")
    wait_for(Path(f"{store}.log"), "together")
    processes[host].send_signal(signal.SIGTERM)
    if host == 1:
        assert processes[1].wait(PATIENCE) == 128 + signal.SIGTERM
        processes[0].send_signal(signal.SIGTERM)
    codes, _, err = ended(processes)
    assert codes == [128 + signal.SIGTERM] * 2, err


class _Hosts:
    """Other hosts that are lost."""

    def check(self):
        pass

    def tell(self, news):
        pass

    def next_news(self, seconds):
        raise HostLostError("the process of host 1 of 2 ended")


def test_host_0_does_not_wait_for_ever_in_a_step_of_all_hosts_when_another_one_is_lost():
    now = 100.0
    leader = Leader(HostPlace(count=2, address="127.0.0.1", port=1), _Hosts(), clock=lambda: now)
    joint, alone = attempt("joint"), attempt("alone")
    leader.environment(ArtifactId("joint", "dev"), joint, all_hosts=True)
    leader.environment(ArtifactId("alone", "dev"), alone, all_hosts=False)
    leader.check(joint)  # which may see it, and say more, a little later
    now += ALONE_SECONDS
    leader.check(alone)
    with pytest.raises(StepError, match="the process of host 1 of 2 ended"):
        leader.check(joint)


def test_a_killed_runner_of_host_0_ends_the_others(tmp_path):
    store = tmp_path / "store"
    first, second = start(store, mode="waits")
    wait_for(Path(f"{store}.log"), "together")
    first.kill()
    _, (_, code), (_, err) = (None, *ended([first, second])[0::2])
    assert code == 1
    assert "the process of host 0 of 2 ended" in err


def test_hosts_with_stores_of_their_own_are_told(tmp_path):
    store, other = tmp_path / "store", tmp_path / "other"
    assert ended(start(store, mode="words", hosts=1))[0] == [0]
    shutil.copytree(store, other)
    codes, _, err = ended(start(store, elsewhere=other))
    assert codes == [1, 1]
    for each in err:
        assert f"host 0 builds joint@2026.07.01, and this host does not see that in {other}: all hosts need" in each


def test_hosts_that_would_not_make_the_same_are_told(tmp_path):
    store, other = tmp_path / "store", tmp_path / "other"
    assert ended(start(store, mode="words", hosts=1))[0] == [0]
    codes, _, err = ended(start(store, elsewhere=other))
    assert codes == [1, 1]
    for each in err:
        assert "host 1 and host 0 do not have the same to make (raw/words@2026.07.01): start the same" in each
    assert not other.exists()


def test_another_recipe_on_one_of_the_hosts_is_told(tmp_path):
    edited = SCRIPT.replace("ctx.artifact_path(words)}", 'ctx.artifact_path(words), "seed": 1}')
    codes, _, err = ended(start(tmp_path / "store", edited=edited))
    assert codes == [1, 1]
    for each in err:
        assert "host 0 builds another joint@2026.07.01 than this host was asked for: start the same script" in each


def test_other_code_on_one_of_the_hosts_is_told(tmp_path):
    edited = SCRIPT.replace("int(me) + 10", "int(me) + 11")
    codes, _, err = ended(start(tmp_path / "store", edited=edited))
    assert codes == [1, 1]
    for each in err:
        assert "host 1 and host 0 do not have the same code for joint@2026.07.01: start the same script" in each
    assert not Path(f"{tmp_path / 'store'}.log").exists()


def test_another_script_is_told(tmp_path):
    first, second = start(tmp_path / "store", mode="other")
    codes, _, err = ended([second])
    assert codes == [1]
    assert "it came for the run of raw/words@2026.07.01, joint@2026.07.01, but host 0 for the run of last@" in err[0]
    first.terminate()  # it would wait for one that belongs
    assert ended([first])[0] != [0]
