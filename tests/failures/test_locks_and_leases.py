"""The ways in which locks and leases of such systems have failed, each tried against ours with real processes.

Which test holds which fault is written down in ``test_table.py``.
"""

from __future__ import annotations

import itertools
import shutil
import threading
import time
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from marin.errors import StoreError
from marin.execution.held_record import HeldRecord
from marin.execution.lease_keeper import LeaseKeeper
from marin.execution.record import Record, State, encode_record, record_path
from marin.execution.runner import resolve, run
from marin.storage.local import LocalStore
from marin.storage.memory import MemoryStore
from tests.execution.pipelines import Poems, poems
from tests.execution.records import STRANGER, attempt, put
from tests.executors.processes import PATIENCE, eventually
from tests.failures.processes import Script

ID = poems().id

BUILD_ONCE = """
def build(config):
    mark("built")
    time.sleep(0.5)
    Path(config["output_path"], "poem").write_text(str(os.getpid()))

def out(ctx):
    return {"output_path": ctx.output_path}

def step(name="raw/poems", **more):
    return ArtifactStep(name=name, version="2026.07.01", run=build, build_config=out, **more)
"""


@pytest.fixture
def script(tmp_path: Path):
    script = Script(tmp_path, BUILD_ONCE)
    yield script
    script.close()


def test_two_forks_of_one_process_are_two_workers(script: Script):
    """A worker id of host and thread is the same in both, and both would acquire."""
    one = script.start(
        """
        ready = time.monotonic() + 0.3
        children = []
        for _ in range(4):
            child = os.fork()
            if child == 0:
                time.sleep(max(0.0, ready - time.monotonic()))
                run(step(), options=options)
                mark("done")
                os._exit(0)
            children.append(child)
        codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
        assert codes == [0] * 4, codes
        """
    )
    assert script.ended(one) == 0, script.said(one)
    assert sorted(script.marks) == ["built"] + ["done"] * 4


BEGAN, GO_ON = threading.Event(), threading.Event()
BUILDERS: list[str] = []


def build_when_told(config) -> Poems:
    """The first one waits in the middle of its work."""
    BUILDERS.append(config["output_path"])
    number = len(BUILDERS)
    if number == 1:
        BEGAN.set()
        assert GO_ON.wait(PATIENCE)
        Path(config["output_path"]).mkdir(parents=True, exist_ok=True)
    Path(config["output_path"], "poems.txt").write_text(f"by {number}")
    return Poems(lines=number)


@pytest.mark.parametrize("gone", ["the record", "the folder"])
def test_deleting_what_is_held_lets_one_publish_and_not_both(options, gone: str):
    """There is no lock file to unlink. Who deletes the record itself ends the lease, and its holder can't publish."""
    BUILDERS.clear()
    BEGAN.clear()
    GO_ON.clear()
    step = poems(run=build_when_told)
    results: list[Poems] = []
    first = threading.Thread(target=lambda: results.append(resolve(step, options=options)), daemon=True)
    first.start()
    try:
        assert BEGAN.wait(PATIENCE)
        address = Path(options.prefix, step.id.address)
        if gone == "the record":
            (address / ".artifact.json").unlink()
        else:
            shutil.rmtree(address)
        made = resolve(step, options=options)
        record = (address / ".artifact.json").read_bytes()
    finally:
        GO_ON.set()
        first.join(PATIENCE)
    assert results == [made]
    assert (address / ".artifact.json").read_bytes() == record
    assert Path(made.path, "poems.txt").read_text() == "by 2"


def test_a_record_torn_at_any_byte_wedges_nobody(options, built):
    store = LocalStore(options.prefix, durable=False)
    lease = msgspec.structs.replace(attempt().lease, ttl_seconds=1e9)
    record = Record(
        name=ID.name, version=ID.version, state=State.BUILDING, attempt=attempt(owner=STRANGER, lease=lease)
    )
    whole = encode_record(record)
    cuts = [0, 1, 2, len(whole) // 3, len(whole) // 2, len(whole) - 3]
    for cut in cuts:
        store.write(record_path(ID.address), whole[:cut])
        assert resolve(poems(), options=options) == Poems(lines=3)
        store.delete(ID.address)
    assert len(built) == len(cuts)


@pytest.mark.parametrize("started", ["1970-01-01T00:00:00Z", "2970-01-01T00:00:00Z"])
def test_a_dead_holder_is_replaced_after_its_lease_whatever_its_clock_said(options, told, started: str):
    """Of a holder on another machine nobody knows whether it lives: silence is measured by the clock of who waits."""
    lease = msgspec.structs.replace(attempt(owner=STRANGER).lease, ttl_seconds=0.5)
    put(LocalStore(options.prefix), str(ID), attempt=attempt(lease=lease, started=started))
    Path(options.prefix, ID.address, "poems.txt").unlink()
    began = time.monotonic()
    assert resolve(poems(), options=options, reporter=told) == Poems(lines=3)
    assert time.monotonic() - began >= 0.5
    assert any("takes over from pid 4 of anna on node7" in note for _, note in told.notes)


@pytest.mark.parametrize("months", [-7, 7])
def test_a_holder_whose_clock_is_months_off_is_not_robbed(script: Script, months: int):
    shifted = f"""
        import datetime
        class Shifted(datetime.datetime):
            @classmethod
            def now(cls, tz=None):
                return super().now(tz) + datetime.timedelta(days={30 * months})
        datetime.datetime = Shifted
    """
    slow = """
        def build(config):
            mark("built")
            while not (FOLDER / "go").exists():
                time.sleep(0.01)
        run(step(), options=options)
    """
    one = script.start(shifted + slow)
    eventually(lambda: script.marks == ["built"])
    other = script.start("run(step(), options=options)")
    eventually(lambda: "waiting for" in script.said(other))  # and does not rob it at once
    (script.folder / "go").touch()
    assert [script.ended(one), script.ended(other)] == [0, 0], script.said(one) + script.said(other)
    assert script.marks == ["built"]


class Flaky:
    """A store in memory that carries out one swap of three."""

    def __init__(self) -> None:
        self._store = MemoryStore()
        self._calls = itertools.count()

    def __getattr__(self, name: str):
        return getattr(self._store, name)

    def compare_and_swap(self, path: str, expected: bytes | None, new: bytes) -> bool:
        if next(self._calls) % 3 < 2:
            raise StoreError("no answer")
        return self._store.compare_and_swap(path, expected, new)


def test_a_store_that_fails_now_and_then_does_not_end_the_heartbeat():
    flaky = Flaky()
    ours = attempt(lease=msgspec.structs.replace(attempt().lease, ttl_seconds=0.3))
    record = Record(name=ID.name, version=ID.version, state=State.BUILDING, attempt=ours)
    raw = encode_record(record)
    flaky.write(record_path(ID.address), raw)
    held = HeldRecord(flaky, record, ours, raw)  # type: ignore[arg-type]
    keeper = LeaseKeeper(0.3)
    try:
        with keeper.keep(held):
            eventually(lambda: held.attempt.lease.beat >= 5)
    finally:
        keeper.stop()
    assert not held.is_lost


def test_the_end_of_a_build_is_not_a_lost_lease(options, told):
    """The heartbeat runs on while the holder publishes, and finds the record changed: by itself."""
    quick = replace(options, lease_seconds=0.03)
    steps = [poems(name=f"raw/{number}") for number in range(60)]
    run(*steps, options=quick, reporter=told)
    assert set(told.outcomes.values()) == {"built"}
    assert [note for note in told.notes if "lost" in note[1] or "takes over" in note[1]] == []


def test_ranks_of_one_job_that_run_the_same_pipeline_do_not_wait_for_each_other_for_ever(script: Script):
    """Each waits for what another one builds, in an order of its own; nobody holds one while it waits for another."""
    body = """
        one, other = step("raw/one"), step("raw/other")
        both = step("both", deps=(one, other))
        handles = [one, other, both]
        rank = int(os.environ["RANK"])
        run(*handles[rank % 3:], *handles[:rank % 3], options=options)
        """
    ranks = [script.start(body, RANK=str(rank)) for rank in range(4)]
    assert [script.ended(rank) for rank in ranks] == [0] * 4, "".join(map(script.said, ranks))
    assert script.marks == ["built"] * 3


def test_a_process_that_was_killed_is_not_waited_for(script: Script):
    """Although its lease has an hour left."""
    one = script.start(
        """
        def build(config):
            mark("built")
            time.sleep(600)
        run(step(), options=options)
        """,
        lease=3600,
    )
    eventually(lambda: script.marks)
    one.kill()
    one.wait()
    other = script.start("run(step(), options=options)", lease=3600)
    assert script.ended(other) == 0, script.said(other)
    assert "takes over from pid" in script.said(other)
