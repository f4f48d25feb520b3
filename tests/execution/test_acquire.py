"""Who gets the lease, and what becomes of what is found at an address."""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from marin.errors import AddressOccupiedError, NotBuiltError, RunError, StorageFullError, StoreError
from marin.execution.planning import Plan
from marin.execution.remote_function import remote
from marin.execution.runner import load, resolve
from marin.storage.local import LocalStore
from marin.testing.recorder import RecordingReporter
from tests.execution.pipelines import Poems, poems


def test_a_copied_artifact_is_not_served_as_another_one(options, told):
    one, other = poems(), poems("2026.07.02", word="lily", lines=1)
    made = resolve(one, options=options)
    shutil.copytree(made.path, Path(options.prefix, other.id.address))
    with pytest.raises(NotBuiltError):
        load(other, options=options)
    built = resolve(other, options=options, reporter=told)
    assert built == Poems(lines=1)
    assert Path(built.path, "poems.txt").read_text() == "lily 0"
    assert "record of raw/poems@2026.07.01" in told.notes[0][1]
    kept = list(Path(built.path).glob(".stray-*/poems.txt"))
    assert [path.read_text().splitlines()[0] for path in kept] == ["rose 0"]


class Overtaken(RecordingReporter):
    """Another run makes the step after this one has planned, and before it has begun."""

    def __init__(self, overtake: Callable[[], object]) -> None:
        super().__init__()
        self._overtake = overtake

    def planned(self, plan: Plan, *, prefix: str, origin: str, hint: str | None) -> None:
        super().planned(plan, prefix=prefix, origin=origin, hint=hint)
        self._overtake()


def test_what_another_run_has_built_since_the_plan_is_used(options, built):
    told = Overtaken(lambda: resolve(poems(), options=options))
    assert resolve(poems(), options=options, reporter=told) == Poems(lines=3)
    assert told.outcomes == {"raw/poems@2026.07.01": "reused"}
    assert len(built) == 1


def test_a_dev_version_that_another_run_has_built_since_the_plan_is_built_anew(options, built):
    told = Overtaken(lambda: resolve(poems("dev"), options=options))
    assert resolve(poems("dev"), options=options, reporter=told).path == built[1]


def test_files_that_somebody_has_put_there_since_the_plan_are_not_taken_over(options, built):
    address = Path(options.prefix, "raw/poems/2026.07.01")

    def put_there() -> None:
        address.mkdir(parents=True)
        (address / "mine.txt").write_text("mine")

    with pytest.raises(RunError, match="has files but no record") as fault:
        resolve(poems(), options=options, reporter=Overtaken(put_there))
    assert isinstance(fault.value.__cause__, AddressOccupiedError)
    assert (address / "mine.txt").read_text() == "mine"
    assert not built


def _fail(config):
    raise ValueError("no ink, said https://anna:secret@shop.example")


def test_a_failure_that_could_not_be_recorded_holds_up_no_later_run_of_this_process(options, built, monkeypatch):
    swap = LocalStore.compare_and_swap

    def full(store, path, expected, new):
        if b'"failed"' in new:
            raise StorageFullError(f"{path}: no room")
        return swap(store, path, expected, new)

    with monkeypatch.context() as patch:
        patch.setattr(LocalStore, "compare_and_swap", full)
        with pytest.raises(RunError, match="no ink") as failed:
            resolve(poems(run=_fail), options=options)
    assert isinstance(failed.value.__cause__, ValueError)
    assert resolve(poems(), options=options) == Poems(lines=3)  # and not after the lease's 90 seconds
    assert len(built) == 1


def test_the_log_that_a_failure_leaves_has_no_secrets(options):
    with pytest.raises(RunError):
        resolve(poems(run=_fail), options=options)
    log = Path(options.prefix, record_of(options, poems().id)["attempt"]["log"]).read_text()
    assert "no ink" in log
    assert "secret" not in log


def record_of(options, id_):
    return json.loads(Path(options.prefix, id_.address, ".artifact.json").read_text())


def _write_a_word(config):
    return Poems(lines="three")


@pytest.mark.parametrize("function", [_write_a_word, remote(_write_a_word)])
def test_a_result_that_does_not_fit_its_type_is_not_published(options, function):
    handle = poems(run=function)
    with pytest.raises(RunError, match=r"result does not fit Poems: Expected `int`, got `str` - at `\$\.lines`"):
        resolve(handle, options=options)
    assert record_of(options, handle.id)["state"] == "failed"
    assert resolve(poems(), options=options) == Poems(lines=3)


ASKED = []


def _ask_for_itself(config):
    return resolve(poems(run=_ask_for_itself), options=ASKED[0])


def test_a_step_that_asks_for_itself_is_told_so_and_does_not_wait(options):
    ASKED[:] = [options]
    with pytest.raises(RunError, match="is being made by the step that asks for it"):
        resolve(poems(run=_ask_for_itself), options=options)
    assert record_of(options, poems().id)["state"] == "failed"


@pytest.mark.parametrize("version", ["2026.07.01", "dev"])
def test_a_build_folder_that_can_not_be_made_frees_the_lease_at_once(options, built, monkeypatch, version):
    def full(store, path):
        raise StorageFullError(f"{path}: no room")

    with monkeypatch.context() as patch:
        patch.setattr(LocalStore, "make_folder", full)
        with pytest.raises(RunError, match="no room"):
            resolve(poems(version), options=options)
    record = record_of(options, poems(version).id)
    assert (record["state"], record["attempt"]["error"].partition(":")[0]) == ("failed", "StorageFullError")
    assert resolve(poems(version), options=options) == Poems(lines=3)


def test_a_lease_that_was_taken_although_the_disk_failed_at_the_end_is_used(options, built, monkeypatch):
    swap = LocalStore.compare_and_swap

    def unsure(store, path, expected, new):
        done = swap(store, path, expected, new)
        if expected is None and b'"building"' in new:
            raise StoreError(f"{path}: refused at the last fsync")
        return done

    with monkeypatch.context() as patch:
        patch.setattr(LocalStore, "compare_and_swap", unsure)
        assert resolve(poems(), options=options) == Poems(lines=3)
    assert len(built) == 1


def test_what_a_killed_writer_left_beside_the_record_of_a_dev_version_does_not_pile_up(options, built):
    address = Path(resolve(poems("dev"), options=options).path).parent
    (address / ".marin-tmp-0123456789abcdef").write_text("half a record")
    resolve(poems("dev"), options=options)
    assert [name for name in os.listdir(address) if not name.startswith(".build-")] == [".artifact.json"]
