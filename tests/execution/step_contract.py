"""What holds for a step wherever it is carried out. A new way inherits these tests and says how it is chosen.

How runs with such steps are killed, stopped and interrupted is tested in ``test_processes.py``, for each way as well.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from marin.errors import OutputError, RunError
from marin.execution.artifact import Artifact
from marin.execution.lazy import ArtifactStep
from marin.execution.progress import Progress, report
from marin.execution.runner import resolve, run
from marin.testing import RecordingReporter
from tests.execution import remote_steps as steps
from tests.execution.remote_steps import Count
from tests.executors.processes import PATIENCE

Way = Callable[[Callable[[Any], Any]], Any]


class SeesProgress(RecordingReporter):
    """Leaves a file when it is told of progress."""

    def __init__(self, file: Path) -> None:
        super().__init__()
        self.file = file

    def progressed(self, id_: Any, progress: Progress) -> None:
        self.file.write_text(f"{progress.done:g} of {progress.total:g} {progress.unit}")


def write_and_count(config: dict[str, Any]) -> Count:
    out = Path(config["output_path"])
    seen = sorted(path.name for path in out.iterdir())
    (out / "sub").mkdir()
    (out / "sub/poème “1”.txt").write_text("roses")
    return Count(value=len(seen), seen=str(out))


def read_input(config: dict[str, Any]) -> Count:
    return Count(value=len((Path(config["source"]) / "sub/poème “1”.txt").read_text()))


def return_text(config: Any) -> str:
    return "a poem"


def link_outside(config: dict[str, Any]) -> Count:
    os.symlink("/etc/hostname", f"{config['output_path']}/hostname")
    return Count(value=1)


def write_a_name_of_ours(config: dict[str, Any]) -> Count:
    Path(config["output_path"], ".artifact.json").write_text("{}")
    return Count(value=1)


def exit_with_words(config: Any) -> None:
    raise SystemExit("cannot go on")


def run_another(config: Any) -> Count:
    inner = ArtifactStep(name="inner", version="2026.07.01", artifact_type=Count, run=write_and_count, build_config=out)
    return Count(value=7, seen=resolve(inner).path)


def fork_and_leave(config: Any) -> Count:
    """The child comes back as well, as with a library that forks and forgets."""
    if os.fork() == 0:
        return Count(value=-1)
    os.wait()
    return Count(value=1)


def report_and_wait(file: str) -> Count:
    """Goes on when somebody has seen how far it is."""
    report(3, 7, "poems")
    return Count(value=float(appears(file)), seen=Path(file).read_text())


def meet(config: dict[str, str]) -> Count:
    """Goes on when the other one is there as well."""
    Path(config["me"]).touch()
    return Count(value=float(appears(config["other"])))


def appears(file: str) -> bool:
    deadline = time.monotonic() + PATIENCE
    while not os.path.exists(file) or (os.path.getsize(file) == 0 and not file.endswith(".here")):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


def out(ctx: Any) -> dict[str, Any]:
    return {"output_path": ctx.output_path}


class StepContract:
    """Give a fixture ``way`` that turns a function into what ``run=`` takes."""

    @pytest.fixture
    def way(self) -> Way:
        raise NotImplementedError

    @pytest.fixture
    def step(self, way: Way):
        def make(function: Any, config: Any = out, *, name: str = "raw/poems", **more: Any) -> ArtifactStep[Any]:
            built = config if callable(config) else lambda ctx: config
            given = {"artifact_type": Count, **more}
            return ArtifactStep(name=name, version="2026.07.01", run=way(function), build_config=built, **given)

        return make

    def record(self, options: Any, name: str = "raw/poems") -> dict[str, Any]:
        return json.loads(Path(options.prefix, name, "2026.07.01", ".artifact.json").read_text())

    def fault(self, options: Any, handle: ArtifactStep[Any], told: RecordingReporter) -> BaseException:
        """What the step failed with. In the record is the same."""
        with pytest.raises(RunError):
            run(handle, options=options, reporter=told)
        failed = told.failures[str(handle.id)]
        record = self.record(options)
        assert record["state"] == "failed"
        assert record["attempt"]["error"].startswith(failed.failure.error)
        assert failed.cause is not None
        return failed.cause

    def test_what_it_returns_and_writes_is_the_artifact(self, options, step):
        made = resolve(step(write_and_count), options=options)
        assert made.value == 0  # its folder was there, and empty
        assert Path(made.path) == Path(options.prefix, "raw/poems/2026.07.01")
        assert Path(made.path, "sub/poème “1”.txt").read_text() == "roses"
        assert not os.path.exists(made.seen)  # where it wrote is not where it lies
        assert self.record(options)["build"]["manifest"]["files"] == 1

    def test_it_reads_what_another_one_made(self, options, step):
        source = step(write_and_count)
        reader = step(read_input, lambda ctx: {"source": ctx.artifact_path(source)}, name="reader", deps=(source,))
        assert resolve(reader, options=options).value == len("roses")

    def test_none_stands_for_an_artifact_without_fields(self, options, step):
        assert resolve(step(print, "a poem", artifact_type=Artifact), options=options) == Artifact()

    def test_a_result_of_megabytes_arrives_as_it_is(self, options, step):
        assert resolve(step(steps.large, 3_000_000), options=options).seen == "x" * 3_000_000

    def test_an_exception_arrives_as_it_was_raised_with_the_line_that_raised_it(self, options, step, told):
        fault = self.fault(options, step(steps.raise_error, "poem"), told)
        assert isinstance(fault, steps.PoemError)
        assert str(fault) == "no rhyme"
        frame = told.failures["raw/poems@2026.07.01"].failure.frame
        assert "remote_steps.py:" in frame
        assert frame.endswith("in raise_error")
        assert self.record(options)["attempt"]["frame"] == frame

    @pytest.mark.parametrize(("kind", "text"), [("stubborn", "ode:3"), ("locked", "locked up")])
    def test_an_exception_that_can_not_travel_is_told_all_the_same(self, options, step, told, kind: str, text: str):
        assert text in str(self.fault(options, step(steps.raise_error, kind), told))

    def test_a_step_that_exits_has_failed(self, options, step, told):
        assert "cannot go on" in str(self.fault(options, step(exit_with_words), told))

    @pytest.mark.parametrize(
        ("function", "text"),
        [
            (return_text, "the step returned str, but its artifact_type is Count"),
            (print, "the step returned None, but its artifact_type Count needs value"),
            (link_outside, "links to '/etc/hostname'"),
            (write_a_name_of_ours, "a name that is kept for Marin"),
        ],
    )
    def test_what_can_not_be_kept_is_refused_and_nothing_is_published(self, options, step, told, function, text: str):
        fault = self.fault(options, step(function), told)
        assert isinstance(fault, OutputError)
        assert text in str(fault)
        address = Path(options.prefix, "raw/poems/2026.07.01")
        assert [name for name in os.listdir(address) if not name.startswith(".")] == []

    def test_the_log_of_a_failure_has_its_traceback(self, options, step, told):
        self.fault(options, step(steps.raise_error, "poem"), told)
        log = Path(options.prefix, self.record(options)["attempt"]["log"]).read_text()
        assert "Traceback" in log
        assert "no rhyme" in log

    def test_what_failed_is_tried_again_with_an_empty_folder(self, options, step, told):
        self.fault(options, step(link_outside), told)
        assert resolve(step(write_and_count), options=options).value == 0

    def test_its_progress_is_told_while_it_runs(self, options, step, tmp_path: Path):
        seen = tmp_path / "seen"
        (made,) = run(step(report_and_wait, str(seen)), options=options, reporter=SeesProgress(seen))
        assert (made.value, made.seen) == (1, "3 of 7 poems")

    def test_what_it_runs_itself_lies_in_the_same_store(self, options, step):
        made = resolve(step(run_another), options=options)
        assert made.seen == str(Path(options.prefix, "inner/2026.07.01"))

    def test_a_child_that_it_has_forked_and_that_comes_back_is_not_the_step(self, options, step):
        assert resolve(step(fork_and_leave), options=options).value == 1

    def test_two_of_them_run_at_the_same_time(self, options, step, tmp_path: Path):
        """Each waits for the other."""
        files = {me: str(tmp_path / f"{me}.here") for me in ("a", "b")}
        pair = [
            step(meet, {"me": files[me], "other": files[other]}, name=f"raw/{me}")
            for me, other in (("a", "b"), ("b", "a"))
        ]
        assert [one.value for one in run(*pair, options=options)] == [1, 1]
