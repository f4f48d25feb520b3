"""What an attempt left comes into the hands of the next one, whatever happens on the way: nothing of it is lost."""

import errno
import os
import shutil
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from marin.errors import RunError, StorageFullError, StoreError
from marin.execution import partial_work
from marin.execution.lazy import ArtifactStep
from marin.execution.record import FailedTry, build_folder
from marin.execution.remote_function import Resumable, remote
from marin.execution.runner import plan, run
from marin.storage.local import LocalStore
from marin.testing.recorder import RecordingReporter
from tests.execution.records import STRANGER, attempt, put

VERSION = "2026.07.01"


def going_on(config):
    """Adds a line to what is there; refuses what was made with another word; stops before the end if told so."""
    path = Path(config["output_path"], "lines")
    lines = path.read_text().split() if path.exists() else []
    if lines and lines[0] != config["word"]:
        raise ValueError(f"word: {lines[0]} → {config['word']}")
    path.write_text(" ".join([*lines, config["word"]]))
    if config["stops"]:
        raise ValueError("stopped in the middle")


def step(word: str = "rose", *, stops: bool = False, resumable: Resumable = True) -> ArtifactStep:
    """``stops`` is not identity."""
    return ArtifactStep(
        name="raw/poems",
        version=VERSION,
        run=remote(going_on, resumable=resumable),
        build_config=lambda ctx: {"output_path": ctx.output_path, "word": word, "stops": ctx.runtime_arg("stops")},
        runtime_args={"stops": stops},
    )


def lines(made) -> list[str]:
    return Path(made.path, "lines").read_text().split()


def left_behind(options, *, by=None, **more) -> LocalStore:
    """A store in which the attempt b1 has written a line, and is recorded as ``by`` says; ``None``: as failed."""
    store = LocalStore(options.prefix, durable=False)
    fingerprint = step().fingerprint()
    made = attempt("b1", error="killed", fingerprint_scheme=fingerprint.scheme, fingerprint_digest=fingerprint.digest)
    put(store, str(step().id), attempt=msgspec.structs.replace(made, **more) if by is None else by(made))
    store.delete(f"{step().id.address}/poems.txt")
    store.write(f"{build_folder(step().id.address, 'b1')}/lines", b"rose")
    return store


def test_it_is_taken_over_from_an_attempt_that_never_came_to_have_it(options):
    """Such as one that was interrupted in the pause before a retry, or killed before the folder was moved."""
    digest = step().fingerprint().digest
    left_behind(options, by=lambda b1: attempt("b2", error="interrupted", fingerprint_digest=digest, takes_over=b1))
    (made,) = run(step(), options=options)
    assert lines(made) == ["rose", "rose"]


def test_the_last_attempt_that_has_written_is_the_one_that_counts(options):
    digest = step().fingerprint().digest
    store = left_behind(options, by=lambda b1: attempt("b2", error="x", fingerprint_digest=digest, takes_over=b1))
    store.write(f"{build_folder(step().id.address, 'b2')}/lines", b"rose rose rose")
    (made,) = run(step(), options=options)
    assert lines(made) == ["rose"] * 4


def test_a_full_disk_while_it_is_taken_over_costs_nothing(options, monkeypatch):
    left_behind(options)

    def full(store, source, target):
        raise StorageFullError(f"{target}: no space")

    with monkeypatch.context() as patch:
        patch.setattr(LocalStore, "move_folder", full)
        for _ in range(2):
            with pytest.raises(RunError, match="no space"):
                run(step(), options=options)
    (made,) = run(step(), options=options)
    assert lines(made) == ["rose", "rose"]


def test_a_kill_while_it_is_taken_over_costs_nothing(options, monkeypatch):
    left_behind(options)
    for _ in range(2):
        if (child := os.fork()) == 0:  # it is killed with the new attempt recorded, and the folder not yet moved
            try:
                LocalStore.move_folder = lambda *_: os._exit(9)  # pyright: ignore[reportAttributeAccessIssue]
                run(step(), options=options)
            finally:
                os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9
    (made,) = run(step(), options=options)
    assert lines(made) == ["rose", "rose"]


def silent(options) -> LocalStore:
    """As ``left_behind``, of a builder that is silent, but not known to be dead."""
    lease = msgspec.structs.replace(attempt(owner=STRANGER).lease, ttl_seconds=0.2)
    return left_behind(options, error=None, lease=lease)


def test_of_a_silent_builder_a_copy_is_gone_on_with(options):
    silent(options)
    (made,) = run(step(), options=options)
    assert lines(made) == ["rose", "rose"]


def test_a_copy_that_can_not_be_written_costs_nothing(options, monkeypatch):
    """A full disk once counted as work that changes, and all began anew."""
    silent(options)

    def full(*_, **__):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(shutil, "copyfile", full)
        patch.setattr(shutil, "copy2", full)
        with pytest.raises(RunError, match=r"can't be copied.*No space left") as failed:
            run(step(), options=options)
        assert isinstance(failed.value.__cause__, StoreError)
    (made,) = run(step(), options=options)
    assert lines(made) == ["rose", "rose"]


@pytest.fixture
def changing(options, monkeypatch):
    """The work of a silent builder in which a file goes whenever another one is copied. Gives back how to end that."""
    store = silent(options)
    monkeypatch.setattr(partial_work, "_COPY_PAUSE_SECONDS", 0.0)
    old = Path(store.url(build_folder(step().id.address, "b1")))
    for name in ("half-1", "half-2"):
        (old / name).write_text("1")
    real = shutil.copyfile

    def copy_slowly(source, *arguments, **more):
        for other in old.glob("half-*"):
            if str(other) != str(source):
                other.rename(other.with_name(f"half-{other.name}"))
        return real(source, *arguments, **more)

    monkeypatch.setattr(shutil, "copyfile", copy_slowly)
    return monkeypatch.undo


def test_work_that_changes_while_it_is_copied_is_left_alone(options, told, changing):
    """A builder that is silent, but not known to be dead, may still write: what is torn is no start."""
    (made,) = run(step(), options=options, reporter=told)
    assert sorted(path.name for path in Path(made.path).iterdir() if not path.name.startswith(".")) == ["lines"]
    assert lines(made) == ["rose"]
    assert any("is still being changed" in note for _, note in told.notes)


def test_a_step_that_is_given_any_work_does_not_begin_without_it_either(options, changing):
    with pytest.raises(RunError, match=r"is still being changed by .*nothing is lost"):
        run(step(resumable="any_recipe"), options=options)
    changing()
    (made,) = run(step(resumable="any_recipe"), options=options)
    assert lines(made) == ["rose", "rose"]


# Of another recipe


def test_work_of_another_recipe_is_removed_and_the_plan_says_so(options, told):
    left_behind(options)
    reason = plan(step("lily"), options=options).steps[step().id].reason
    assert reason.endswith("failed: killed; the recipe is another one now: begins anew, without what it left")
    (made,) = run(step("lily"), options=options, reporter=told)
    assert lines(made) == ["lily"]
    assert any("starts anew" in note for _, note in told.notes)


def test_a_step_that_judges_itself_is_given_it_and_may_refuse(options, told):
    left_behind(options)
    other = step("lily", resumable="any_recipe")
    reason = plan(other, options=options).steps[step().id].reason
    assert reason.endswith("goes on from what it left, or refuses if that does not fit")
    for _ in range(2):  # the refusal is no reason to forget it
        with pytest.raises(RunError, match="word: rose → lily"):
            run(other, options=options, reporter=told)
    assert any("made by another recipe, if that fits" in note for _, note in told.notes)
    (made,) = run(step(resumable="any_recipe"), options=options)
    assert lines(made) == ["rose", "rose"]


def test_a_dev_version_is_given_nothing_of_another_run(options):
    mutable = replace(step(stops=True, resumable="any_recipe"), version="dev")
    with pytest.raises(RunError, match="stopped in the middle"):
        run(mutable, options=options)
    (made,) = run(replace(mutable, runtime_args={"stops": False}), options=options)
    assert lines(made) == ["rose"]


def test_an_interrupted_pause_before_a_retry_loses_nothing(options):
    class Impatient(RecordingReporter):
        def retrying(self, id_, failed: FailedTry, *, retry: int, of: int, seconds: float) -> None:
            raise KeyboardInterrupt

    again = step(stops=True)
    patient = replace(again, run=remote(going_on, resumable=True, retries=1, retry_on="error"))
    with pytest.raises((RunError, KeyboardInterrupt)):
        run(patient, options=replace(options, retry_seconds=30.0), reporter=Impatient())
    (made,) = run(step(), options=options)
    assert lines(made) == ["rose", "rose"]
