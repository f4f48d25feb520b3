import io
import json
import re
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from marin.errors import StoreError
from marin.execution.artifact import Artifact
from marin.execution.console import (
    Guarded,
    JsonReporter,
    PlainReporter,
    default_reporter,
    is_live_terminal,
    plan_as_json,
    render_plan,
    reporting,
    terminal_reporter,
)
from marin.execution.events import FailedStep, Outcome, Reporter, SilentReporter
from marin.execution.failure import Failure
from marin.execution.graph import lower
from marin.execution.identity import ArtifactId
from marin.execution.lazy import ArtifactStep
from marin.execution.meter import Meter, shortened
from marin.execution.planning import Observation, Plan, make_plan
from marin.execution.progress import Progress
from marin.execution.record import Record, RecordedFingerprint, State
from marin.execution.remote_function import remote
from marin.testing import FakeClock
from tests.execution.records import build

Handle = ArtifactStep[Artifact]


def step(name: str, *deps: Handle, lr: float = 0.0006, version: str = "2026.07.01") -> Handle:
    return ArtifactStep(
        name=name, version=version, run="project.steps:make", deps=deps, build_config=lambda ctx: {"lr": lr}
    )


def built_from(handle: Handle) -> Observation:
    made = handle.fingerprint()
    fingerprint = RecordedFingerprint(scheme=made.scheme, digest=made.digest, payload=made.payload)
    record = Record(
        name=handle.id.name, version=handle.id.version, state=State.BUILT, build=build(fingerprint=fingerprint)
    )
    return Observation(record=record)


def plan(*targets: Handle, built: tuple[Handle, ...] = (), **faults: StoreError) -> Plan:
    """The plan where the store has what is ``built``; each of those may be another recipe of the same id."""
    graph = lower(*targets)
    seen = {id_: Observation() for id_ in graph.steps}
    seen |= {handle.id: built_from(handle) for handle in built}
    seen |= {id_: Observation(fault=faults[id_.name]) for id_ in graph.steps if id_.name in faults}
    return make_plan(graph, seen)


def failed(id_: ArtifactId, message: str = "no verse today") -> FailedStep:
    failure = Failure(error="ValueError", message=message, frame="poems.py:12 in write", traceback="...")
    return FailedStep(id=id_, failure=failure, log="/store/.logs/a.log", cause=None)


class Shown:
    """A plain reporter, and what it wrote."""

    def __init__(self, planned: Plan, *, origin: str = "--prefix", hint: str | None = None) -> None:
        self.clock = FakeClock()
        self.stream = io.StringIO()
        self.reporter = PlainReporter(self.stream, clock=self.clock)
        self.reporter.planned(planned, prefix="/store", origin=origin, hint=hint)

    @property
    def text(self) -> str:
        return self.stream.getvalue()


# The plan


def test_a_plan_has_one_line_for_each_step_with_decision_address_and_reason():
    raw, other = step("raw"), step("other")
    text = render_plan(plan(step("model", raw), other, built=(other,)))
    assert [line.split(maxsplit=2) for line in text.splitlines()[:3]] == [
        ["build", "raw/2026.07.01", "not built yet"],
        ["build", "model/2026.07.01", "not built yet"],
        ["cached", "other/2026.07.01", "built 2026-07-01T10:01:15Z"],
    ]
    assert text.splitlines()[3:] == ["3 steps: 2 to build, 1 cached"]


def test_a_plan_shows_each_drifted_key_beneath_its_step():
    text = render_plan(plan(step("model", lr=0.0008), built=(step("model"),)))
    assert text.splitlines()[1:4] == [
        "      the recipe has changed, but it is served as it was built:",
        '        config["lr"]: 0.0006 → 0.0008',
        "      bump the version to build the new recipe",
    ]


def test_a_plan_says_why_a_step_is_refused():
    text = render_plan(plan(step("model"), model=StoreError("the disk is on fire: call somebody")))
    assert re.search(r"refuse +model/2026\.07\.01", text)
    assert "      the disk is on fire: call somebody\n" in text


@pytest.mark.parametrize("count", [1, 3])
def test_a_plan_without_work_says_that_all_is_cached(count: int):
    handles = [step(f"model-{number}") for number in range(count)]
    text = render_plan(plan(*handles, built=tuple(handles)))
    assert text.splitlines()[-1] in (
        "the one step is cached: nothing to build",
        "all 3 steps are cached: nothing to build",
    )


def test_what_is_not_needed_is_told_apart_from_what_is_cached():
    raw = step("raw", lr=2.0)
    model = step("model", raw)
    planned = plan(model, built=(model, step("raw")))
    assert render_plan(planned).splitlines()[-1] == "all 2 steps are cached or not needed: nothing to build"
    text = Shown(planned).text
    assert "warning: the recipe of raw@2026.07.01 has changed, but what was made from it is served as it was" in text


@pytest.mark.parametrize("width", [40, 80, 200, None])
def test_a_plan_never_cuts_an_address(width: int | None):
    long = step("checkpoints/" + "poet-" * 20 + "end")
    text = render_plan(plan(long, step("short")), width=width)
    assert long.id.address in text
    assert "short/2026.07.01" in text
    if width == 40:
        assert all(len(line) <= 40 for line in text.splitlines() if "poet" not in line)


def test_a_plan_has_colors_only_when_asked():
    planned = plan(step("model"))
    assert "\x1b" not in render_plan(planned, color=False)
    assert "\x1b[32m" in render_plan(planned, color=True)


def test_a_plan_as_json_says_what_the_text_says():
    told = plan_as_json(plan(step("model", lr=0.0008), step("new"), built=(step("model"),)))
    assert json.loads(json.dumps(told)) == told
    assert told["summary"] == {"build": 1, "adopt": 0, "serve": 1, "skip": 0, "refuse": 0}
    (change,) = told["steps"][0]["changes"]
    assert (change["path"], change["text"]) == ('config["lr"]', 'config["lr"]: 0.0006 → 0.0008')
    assert told["targets"] == ["model@2026.07.01", "new@2026.07.01"]


# The beginning of a run


def test_a_run_says_once_where_its_store_is_and_why():
    shown = Shown(plan(step("model")), origin="MARIN_PREFIX", hint="/marin_store exists")
    assert shown.text.count("/store (MARIN_PREFIX)") == 1
    assert "note: /marin_store exists" in shown.text


def test_a_run_lists_what_it_makes_if_that_is_little_and_counts_it_if_it_is_much():
    little = Shown(plan(*(step(f"s{number}") for number in range(5))))
    much = Shown(plan(*(step(f"s{number}") for number in range(500))))
    assert "s3/2026.07.01" in little.text
    assert "s3/2026.07.01" not in much.text
    assert "500 steps: 500 to build" in much.text


def test_a_drifted_step_is_told_with_one_warning_that_has_each_key_and_the_remedy():
    model = ArtifactStep(name="model", version="2026.07.01", run="m:f", build_config=lambda ctx: {"lr": 1.0, "beta": 2})
    old = replace(model, build_config=lambda ctx: {"lr": 2.0, "beta": 3})
    text = Shown(plan(model, built=(old,))).text
    assert text.count("warning:") == 1
    assert '    config["lr"]: 2.0 → 1.0\n' in text
    assert '    config["beta"]: 3 → 2\n' in text
    assert text.count("bump the version to build the new recipe") == 1


def test_ten_thousand_drifted_steps_are_not_ten_thousand_warnings():
    handles = [step(f"s{number}", lr=2.0) for number in range(300)]
    text = Shown(plan(*handles, built=tuple(step(f"s{number}") for number in range(300)))).text
    assert text.count("warning:") == 20
    assert "280 steps more with changes" in text


# The course of a run, without a terminal


def test_a_step_leaves_a_line_at_its_start_and_at_its_end():
    model = step("model")
    shown = Shown(plan(model))
    shown.reporter.started(model.id, log="/store/model.log")
    shown.reporter.finished(model.id, Outcome.BUILT, seconds=75, path="/store/model/2026.07.01")
    assert "model@2026.07.01: started, log /store/model.log\n" in shown.text
    assert "model@2026.07.01: built in 1 min 15 s\n" in shown.text


def test_progress_is_a_line_now_and_then():
    model = step("model")
    shown = Shown(plan(model))
    shown.reporter.started(model.id, log=None)
    before = len(shown.text.splitlines())
    for number in range(1000):
        shown.clock.advance(0.01)
        shown.reporter.progressed(model.id, Progress(number + 1, 1000, "tokens", "loss 3.21"))
    lines = shown.text.splitlines()[before:]
    assert len(lines) == 3
    assert re.fullmatch(
        r"model@2026\.07\.01  \d+%  \d+/1,000 tokens  100/s  loss 3\.21  [\d.]+ s, [\d.]+ s left", lines[1]
    )


def test_who_is_waited_for_is_said():
    model = step("model")
    shown = Shown(plan(model))
    shown.reporter.waiting(model.id, holder="pid 7 of anna on node7")
    assert "model@2026.07.01: waiting for pid 7 of anna on node7" in shown.text


def test_ten_thousand_quick_steps_leave_few_lines():
    handles = [step(f"s{number}") for number in range(10_000)]
    shown = Shown(plan(*handles))
    for handle in handles:
        shown.clock.advance(0.001)
        shown.reporter.started(handle.id, log=None)
        shown.reporter.progressed(handle.id, Progress(1, 1, ""))
        shown.reporter.finished(handle.id, Outcome.BUILT, seconds=0.001, path="/p")
    shown.reporter.ended(interrupted=False)
    assert len(shown.text.splitlines()) < 30
    assert "10,000 built in 10 s" in shown.text


def test_a_slow_step_of_a_large_run_leaves_a_line():
    handles = [step(f"s{number}") for number in range(100)]
    shown = Shown(plan(*handles))
    shown.reporter.finished(handles[0].id, Outcome.BUILT, seconds=9, path="/p")
    assert "s0@2026.07.01: built in 9.0 s" in shown.text


# The end of a run


def test_the_end_says_where_each_target_lies_whether_built_or_served():
    old, new = step("old"), step("new", version="dev")
    shown = Shown(plan(old, new, built=(old,)))
    shown.reporter.finished(new.id, Outcome.BUILT, seconds=1, path="/store/new/dev/.build-b")
    shown.reporter.ended(interrupted=False)
    assert shown.text.splitlines()[-3:] == [
        "1 built, 1 cached in 0.0 s",
        "  old@2026.07.01  /store/old/2026.07.01",
        "  new@dev         /store/new/dev/.build-b",
    ]


def test_failures_are_listed_with_error_frame_and_log_and_the_blocked_apart():
    raw = step("raw")
    model = step("model", raw)
    shown = Shown(plan(model, step("other")))
    shown.reporter.started(raw.id, log=None)
    shown.reporter.failed(failed(raw.id, "line one\nline two"))
    shown.reporter.failed(failed(step("other").id))
    shown.reporter.blocked(model.id, by=raw.id)
    shown.reporter.ended(interrupted=False)
    end = shown.text[shown.text.index("2 steps failed:") :]
    assert end.splitlines() == [
        "2 steps failed:",
        "  raw@2026.07.01",
        "    ValueError: line one",
        "      line two",
        "    at poems.py:12 in write",
        "    log /store/.logs/a.log",
        "  other@2026.07.01",
        "    ValueError: no verse today",
        "    at poems.py:12 in write",
        "    log /store/.logs/a.log",
        "blocked, because a step that they need failed:",
        "  model@2026.07.01 (needs raw@2026.07.01)",
        "2 failed, 1 blocked in 0.0 s",
    ]


def test_a_failure_that_was_the_last_thing_said_is_not_said_again():
    raw = step("raw")
    shown = Shown(plan(step("model", raw), step("other")))
    shown.reporter.failed(failed(raw.id, "line one\nline two"))
    shown.reporter.ended(interrupted=False)
    assert shown.text[shown.text.index("raw@2026.07.01: failed") :].splitlines() == [
        "raw@2026.07.01: failed: ValueError: line one",
        "      line two",
        "    at poems.py:12 in write",
        "    log /store/.logs/a.log",
        "1 failed in 0.0 s",
    ]


def test_a_failure_is_told_in_full_at_the_end_if_something_else_was_said_since():
    raw, other = step("raw"), step("other")
    shown = Shown(plan(step("model", raw), other))
    shown.reporter.failed(failed(raw.id))
    shown.reporter.finished(other.id, Outcome.BUILT, seconds=1, path="/p")
    shown.reporter.ended(interrupted=False)
    assert "1 step failed:\n  raw@2026.07.01\n    ValueError: no verse today\n" in shown.text


def test_a_run_that_is_refused_says_nothing_at_its_end():
    old, new = step("old"), step("new")
    for planned in (
        plan(old, step("bad"), new, built=(old,), bad=StoreError("torn")),
        plan(old, step("bad"), built=(old,), bad=StoreError("torn")),
        plan(old, new, built=(old,)),  # refused since it can't be sent
    ):
        shown = Shown(planned)
        before = shown.text
        shown.reporter.ended(interrupted=False)
        assert shown.text == before


# A run that is stopped


def interrupted(
    *, version: str = "2026.07.01", signals: int = 1, in_process: bool = True, resumable: bool = True
) -> str:
    """What is said when a run is stopped whose one step runs."""
    function = "project.steps:make"
    model = step("model", version=version)
    model = replace(model, run=remote(function, resumable=resumable) if in_process else function)
    shown = Shown(plan(model))
    shown.reporter.started(model.id, log=None)
    before = len(shown.text)
    for _ in range(signals):
        shown.reporter.stopping("SIGINT")
    shown.reporter.ended(interrupted=True)
    return shown.text[before:]


def test_a_signal_is_answered_at_once_and_the_end_says_that_a_new_run_goes_on():
    assert interrupted() == (
        "stopping: steps save their work (again to kill them)\n"
        "interrupted: 1 not built\n"
        "run again to go on from where they were\n"
    )


def test_a_run_that_would_begin_anew_does_not_promise_to_go_on():
    for told in (interrupted(version="dev"), interrupted(resumable=False), interrupted(signals=2)):
        assert "go on" not in told


def test_of_a_step_in_the_process_of_the_run_nothing_is_saved():
    assert interrupted(in_process=False) == "stopping\ninterrupted: 1 not built\n"


def test_a_second_signal_is_answered_too():
    assert "\nkilling what still runs\n" in interrupted(signals=2)


def test_a_step_that_waits_for_another_process_is_not_what_goes_on():
    model = replace(step("model"), run=remote("project.steps:make", resumable=True))
    shown = Shown(plan(model))
    shown.reporter.waiting(model.id, holder="pid 7 of anna on node7")
    shown.reporter.stopping("SIGINT")
    shown.reporter.ended(interrupted=True)
    assert "go on" not in shown.text


def test_an_interrupted_run_says_what_is_left():
    shown = Shown(plan(step("a"), step("b")))
    shown.reporter.finished(step("a").id, Outcome.BUILT, seconds=1, path="/p")
    shown.reporter.ended(interrupted=True)
    assert "interrupted: 1 built, 1 not built\n" in shown.text


# JSON


def test_json_is_one_object_a_line_and_progress_is_thinned_out():
    model = step("model")
    stream, clock = io.StringIO(), FakeClock()
    reporter = JsonReporter(stream, clock=clock)
    everything(reporter, plan(model), model.id)
    for _ in range(100):
        clock.advance(0.01)
        reporter.progressed(model.id, Progress(1, 2, "", "naïve\nnote"))
    lines = [json.loads(line) for line in stream.getvalue().splitlines()]
    told = [
        "planned",
        "started",
        "waiting",
        "progressed",
        "noted",
        "finished",
        "failed",
        "blocked",
        "stopping",
        "ended",
    ]
    assert [line["event"] for line in lines[:10]] == told
    assert len(lines) <= 12


def everything(reporter: Reporter, planned: Plan, id_: ArtifactId) -> None:
    reporter.planned(planned, prefix="/store", origin="default", hint=None)
    reporter.started(id_, log=None)
    reporter.waiting(id_, holder="somebody")
    reporter.progressed(id_, Progress(1, 2, "lines"))
    reporter.noted(id_, "a note")
    reporter.finished(id_, Outcome.BUILT, seconds=1.0, path="/p")
    reporter.failed(failed(id_))
    reporter.blocked(id_, by=id_)
    reporter.stopping("SIGINT")
    reporter.ended(interrupted=False)


# Nothing that shows a run may end it


class Broken(SilentReporter):
    def __init__(self, fault: Callable[[], Exception]) -> None:
        self.calls = 0
        self.fault = fault

    def progressed(self, id_: ArtifactId, progress: Progress) -> None:
        self.calls += 1
        raise self.fault()


def test_a_display_that_fails_is_told_once_and_left_alone(capsys: pytest.CaptureFixture[str]):
    broken = Broken(lambda: RuntimeError("no more ink"))
    guarded = Guarded(broken)
    for _ in range(3):
        guarded.progressed(step("a").id, Progress(1, 2, ""))
    assert broken.calls == 1
    assert capsys.readouterr().err.count("the display failed (RuntimeError: no more ink); the run goes on") == 1


def test_a_reader_that_went_away_is_not_even_told(capsys: pytest.CaptureFixture[str]):
    Guarded(Broken(BrokenPipeError)).progressed(step("a").id, Progress(1, 2, ""))
    assert capsys.readouterr().err == ""


def test_a_closed_stream_fails_nothing():
    stream = io.StringIO()
    reporter = terminal_reporter(stream, environ={})
    stream.close()
    everything(reporter, plan(step("a")), step("a").id)


# Which display


class Terminal(io.StringIO):
    encoding = "utf-8"

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("stream", "term", "live"),
    [
        (Terminal(), "xterm-256color", True),
        (Terminal(), "dumb", False),
        (io.StringIO(), "xterm", False),
    ],
)
def test_only_a_terminal_that_can_redraw_gets_the_live_display(stream: io.StringIO, term: str, live: bool):
    assert is_live_terminal(stream, {"TERM": term}) is live


def test_a_surrounding_reporting_decides_what_a_run_inside_uses():
    mine = SilentReporter()
    with reporting(lambda: mine):
        assert default_reporter() is mine
    assert default_reporter() is not mine


# One line about a step


@given(
    width=st.integers(4, 250),
    done=st.floats(),
    total=st.floats(),
    words=st.tuples(st.sampled_from(["", "tokens", "bytes"]), st.text("abc ", max_size=60)),
    name=st.text("abc/", min_size=1, max_size=120),
)
def test_a_line_fits_the_terminal_whatever_the_progress(
    width: int, done: float, total: float, words: tuple[str, str], name: str
):
    unit, note = words
    meter = Meter(name, 0.0)
    meter.update(Progress(0, total, unit), 0.0)
    meter.update(Progress(done, total, unit, note), 9.0)
    assert len(meter.line(10.0, width)) <= width


def test_a_wide_line_has_all_and_a_narrow_one_the_share():
    meter = Meter("tokenized/poems@2026.07.01", 0.0)
    for second in range(11):
        meter.update(Progress(second * 1000, 50_000, "lines", "loss 3.21"), float(second))
    wide, narrow = meter.line(10.0, 200), meter.line(10.0, 40)
    for part in ("━", "20%", "10,000/50,000 lines", "1,000/s", "loss 3.21", "10 s, 40 s left"):
        assert part in wide
    assert narrow == "tokenized/p…s@2026.07.01  20%  40 s left"


def test_an_unknown_total_has_no_bar_and_no_estimate():
    meter = Meter("a@dev", 0.0)
    meter.update(Progress(10, 0, "lines"), 0.0)
    meter.update(Progress(20, 0, "lines"), 10.0)
    meter.update(Progress(30, 0, "lines"), 20.0)
    assert meter.line(20.0, 200) == "a@dev  30 lines  1/s  20 s"


@pytest.mark.parametrize("width", [70, 78, 80, 100, 120, 200])
@pytest.mark.parametrize(
    "name", ["a@dev", "checkpoints/stdlib-1m@2026.11.30", "checkpoints/" + "poet-" * 20 + "@2026.11.30"]
)
def test_from_70_columns_on_share_counts_loss_and_time_left_are_always_there(width: int, name: str):
    meter = Meter(name, 0.0)
    for second in range(31):
        meter.update(Progress(700 + second, 12_345, "steps", "loss 4.04 · 7,174 tok/s"), float(second))
    line = meter.line(30.0, width)
    for part in (name[:8] if len(name) > 8 else name, "  6%  ", "730/12,345", "loss 4.04", "3 h 13 min left"):
        assert part in line
    assert len(line) <= width


def test_a_step_that_has_not_reported_is_starting_and_then_running():
    assert Meter("a@dev", 0.0).line(2.0, 80) == "a@dev  starting  2.0 s"
    assert Meter("a@dev", 0.0).line(10.0, 80) == "a@dev  running  10 s"


def test_the_first_note_of_a_step_stands_alone():
    meter = Meter("a@dev", 0.0)
    meter.update(Progress(0, 0, "", "reading"), 1.0)
    assert meter.line(10.0, 80) == "a@dev  reading  10 s"


def test_there_is_no_estimate_before_the_step_moves_steadily_and_the_start_is_not_in_it():
    meter = Meter("a@dev", 0.0)
    meter.update(Progress(0, 800, "steps", "validating"), 1.0)
    lines = list[str]()
    for number in range(1, 50):  # the first step takes a minute, as it compiles; then 10 a second
        now = 60 + number / 10
        meter.update(Progress(number, 800, "steps"), now)
        lines.append(meter.line(now, 200))
    assert not any(" left" in line or "/s" in line for line in lines[:29])
    assert all(re.search(r"  10/s  .*, 1 min 1\d s left", line) for line in lines[31:])


def test_a_line_break_in_a_note_does_not_break_the_line():
    meter = Meter("a@dev", 0.0)
    meter.update(Progress(1, 2, "", "one\ntwo"), 1.0)
    assert "one two" in meter.line(1.0, 80)


def test_a_new_phase_starts_the_rate_anew():
    meter = Meter("a@dev", 0.0)
    for second in range(10):
        meter.update(Progress(second * 100, 1000, "lines"), float(second))
    meter.update(Progress(0, 1000, "lines"), 10.0)
    assert meter.rate() is None


def test_the_rate_is_that_of_late():
    meter = Meter("a@dev", 0.0)
    for second in range(100):
        meter.update(Progress(second if second < 50 else 50 + (second - 50) * 10, 1000, ""), float(second))
    assert meter.rate() == pytest.approx(10)


@given(st.text(max_size=40), st.integers(1, 40))
def test_a_shortened_text_fits_and_a_short_one_is_whole(text: str, width: int):
    assert len(shortened(text, width)) <= width
    assert shortened(text, len(text) or 1) == text


def test_the_live_display_reads_its_steps_while_they_change(monkeypatch: pytest.MonkeyPatch):
    from marin.execution.live import LiveReporter  # noqa: PLC0415  # rich, only here

    handles = [step(f"s{number}") for number in range(30)]
    reporter: Any = LiveReporter(Terminal())
    reporter.planned(plan(*handles), prefix="/store", origin="default", hint=None)
    stop = threading.Event()
    faults: list[BaseException] = []

    def draw() -> None:
        while not stop.is_set():
            try:
                reporter._draw()
            except BaseException as fault:  # noqa: BLE001
                faults.append(fault)

    thread = threading.Thread(target=draw)
    thread.start()
    for _ in range(30):
        for handle in handles:
            reporter.started(handle.id, log=None)
            reporter.progressed(handle.id, Progress(1, 2, "lines"))
            reporter._end(handle.id)
    stop.set()
    thread.join()
    reporter.ended(interrupted=False)
    assert faults == []
