"""``run``, ``resolve``, ``load`` and ``plan``: from handles to artifacts.

``run`` plans (pure), schedules (pure) and makes what is missing in threads of this process, each of which looks after
one step. Steps that were given to ``remote`` run in processes of their own.

A little over 300 lines: thirty of them tell type checkers what ``run`` returns.
"""

from __future__ import annotations

import contextlib
import gc
import hashlib
import os
import sys
import threading
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypedDict, TypeVar, Unpack, cast, overload

import msgspec

from marin.errors import (
    ConfigurationError,
    LeftOutError,
    NotBuiltError,
)
from marin.execution import provenance
from marin.execution.ambient import Ambient
from marin.execution.artifact import Artifact, at_path
from marin.execution.code import CodeReader
from marin.execution.code_changes import RecordedCode
from marin.execution.console import default_reporter
from marin.execution.crew import Leader, OneHost, check_same_plan, gathered
from marin.execution.events import Reporter, SilentReporter, one_at_a_time
from marin.execution.graph import Step, StepGraph, check_handle, lower
from marin.execution.held_record import nonces_around_us
from marin.execution.identity import ArtifactId
from marin.execution.lazy import ArtifactStep
from marin.execution.lease_keeper import LeaseKeeper
from marin.execution.observe import build_url, observe, observe_step, typed_artifact
from marin.execution.options import RunOptions, ambient_options, is_durable
from marin.execution.planning import Decision, Observation, Plan, check_expected, make_plan
from marin.execution.preflight import check_runnable
from marin.execution.redaction import secret_values
from marin.execution.remote_function import RemoteFunction
from marin.execution.run_loop import RunLoop
from marin.execution.run_state import RunState
from marin.executors.executor import Executor
from marin.executors.hosts import HostPlace
from marin.executors.local import LocalExecutor
from marin.storage.format import ensure_format
from marin.storage.local import LocalStore
from marin.storage.prefix import Prefix, open_store, resolve_prefix, working_folder

if TYPE_CHECKING:
    from marin.executors.roll_call import RollCall

T = TypeVar("T", bound=Artifact)
T2 = TypeVar("T2", bound=Artifact)
T3 = TypeVar("T3", bound=Artifact)
T4 = TypeVar("T4", bound=Artifact)
T5 = TypeVar("T5", bound=Artifact)


class TargetsCaptured(SystemExit):  # of which threads make no noise
    """Ends a script, or its thread, whose call of ``run`` was only looked at, not carried out."""


@dataclass
class CapturedTargets:
    """The handles that a script asked to run."""

    handles: list[Step] = field(default_factory=list[Step])


_CAPTURE = Ambient[CapturedTargets]("capture")


@contextlib.contextmanager
def capture_targets() -> Generator[CapturedTargets]:
    """Inside, ``run`` and ``resolve`` do nothing: they note their handles and raise ``TargetsCaptured``."""
    caught = CapturedTargets()
    with _CAPTURE.use(caught):
        yield caught


def resolve(
    handle: ArtifactStep[T],
    *,
    options: RunOptions | None = None,
    reporter: Reporter | None = None,
    executor: Executor | None = None,
) -> T:
    """The artifact of ``handle``; built first where it, or something it needs, is missing. Errors as in ``run``."""
    return run(handle, options=options, reporter=reporter, executor=executor)[0]


def load(handle: ArtifactStep[T], *, options: RunOptions | None = None) -> T:
    """The artifact of ``handle`` as it lies in the store. Never builds.

    Raises ``NotBuiltError`` if there is no complete build, ``ArtifactTypeError`` if it is of another type, and
    ``FingerprintMismatchError`` if the handle's ``expected_fingerprint`` does not hold.
    """
    check_handle(handle)
    prefix, store = _open(options or ambient_options())
    seen = observe_step(store, handle)
    check_expected(handle, seen.build)
    if seen.fault is not None:
        raise seen.fault
    if seen.pinned is not None:
        build, path = seen.pinned, seen.pinned.source or ""
    elif seen.record is None or seen.record.build is None:
        state = (
            "has not been built" if seen.record is None else f"has no complete build: it is {seen.record.state.value}"
        )
        raise NotBuiltError(f"{handle.id} {state} in {prefix.location}. Build it with resolve(...) or 'marin run'")
    else:
        build, path = seen.record.build, build_url(store, seen.record, seen.record.build)
    return cast("T", at_path(typed_artifact(handle, build, f"record of {handle.id}"), path))


def plan(*handles: Step, options: RunOptions | None = None) -> Plan:
    """What ``run`` would do, and why. Writes nothing."""
    return examine(*handles, options=options).plan


@dataclass(frozen=True)
class Examined:
    """A plan, and what it was made from."""

    plan: Plan
    observed: Mapping[ArtifactId, Observation]
    prefix: Prefix
    store: LocalStore


def examine(*handles: Step, options: RunOptions | None = None) -> Examined:
    """What ``run`` would do, with what the store says of each step. Writes nothing."""
    options = options or ambient_options()
    prefix, store = _open(options)
    with _uncollected():
        graph = lower(*handles)
        observed = observe(store, graph)
        return Examined(make_plan(graph, observed, only=_only(graph, options.only)), observed, prefix, store)


@contextlib.contextmanager
def _uncollected() -> Generator[None]:
    """Inside, Python looks for no cycles: all of a plan stays, and looking takes a third of the time."""
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


class _More(TypedDict, total=False):
    options: RunOptions | None
    reporter: Reporter | None
    executor: Executor | None


# Of a few handles each artifact has its own type, of many they have one in common.
@overload
def run(one: ArtifactStep[T], /, **more: Unpack[_More]) -> tuple[T]: ...
@overload
def run(one: ArtifactStep[T], two: ArtifactStep[T2], /, **more: Unpack[_More]) -> tuple[T, T2]: ...
@overload
def run(
    one: ArtifactStep[T], two: ArtifactStep[T2], three: ArtifactStep[T3], /, **more: Unpack[_More]
) -> tuple[T, T2, T3]: ...
@overload
def run(
    one: ArtifactStep[T],
    two: ArtifactStep[T2],
    three: ArtifactStep[T3],
    four: ArtifactStep[T4],
    /,
    **more: Unpack[_More],
) -> tuple[T, T2, T3, T4]: ...
@overload
def run(
    one: ArtifactStep[T],
    two: ArtifactStep[T2],
    three: ArtifactStep[T3],
    four: ArtifactStep[T4],
    five: ArtifactStep[T5],
    /,
    **more: Unpack[_More],
) -> tuple[T, T2, T3, T4, T5]: ...
@overload
def run(*handles: ArtifactStep[T], **more: Unpack[_More]) -> tuple[T, ...]: ...
def run(
    *handles: Step,
    options: RunOptions | None = None,
    reporter: Reporter | None = None,
    executor: Executor | None = None,
) -> tuple[Any, ...]:
    """The artifacts of ``handles``, in order; what is missing is built first, dependencies before dependents.

    ``executor`` runs the steps that were given to ``remote``; left out, they run on this machine.

    With ``only`` in the options, a handle that it leaves out and that is not built is a ``LeftOutError`` at the end.

    Raises a ``MarinError`` before anything runs if the pipeline can't be run as it is; ``RunError`` at the end if
    steps failed, after everything that does not depend on them was made; ``RunInterrupted`` on SIGINT and SIGTERM.
    """
    if (capture := _CAPTURE.get()) is not None:
        capture.handles.extend(handles)
        raise TargetsCaptured
    place = HostPlace() if nonces_around_us() else HostPlace.of(os.environ)
    with gathered(place, about=lambda: _about(handles)) as hosts:
        return _run(handles, options or ambient_options(), reporter, executor or LocalExecutor(), place, hosts)


def _run(
    handles: Sequence[Step],
    options: RunOptions,
    reporter: Reporter | None,
    executor: Executor,
    place: HostPlace,
    hosts: RollCall | None,
) -> tuple[Any, ...]:
    """``run``, on the host at ``place``. ``hosts``: all of them, if there are several."""
    examined = examine(*handles, options=options)
    planned, prefix, store = examined.plan, examined.prefix, examined.store
    unrecorded = {id_ for id_, seen in examined.observed.items() if seen == _NOTHING}
    del examined  # a run need not keep the records of what it makes anew
    shown = one_at_a_time(SilentReporter() if place.index else reporter or default_reporter())
    shown.planned(planned, prefix=prefix.location, origin=prefix.origin, hint=prefix.hint)
    code = _code(planned)
    try:
        check_runnable(planned, executor, store)
        if hosts is not None:
            check_same_plan(hosts, [step.id for step in planned.to_make], _code_of_all_hosts(planned, code))
    except BaseException:
        shown.ended(interrupted=False)
        raise
    state = RunState(
        store=store,
        options=options,
        prefix=prefix.location,
        durable=is_durable(options, os.environ),
        reporter=shown,
        executor=executor,
        keeper=LeaseKeeper(options.lease_seconds),
        provenance=_once(lambda: provenance.capture(os.environ, sys.orig_argv, working_folder())),
        secrets=secret_values(os.environ),
        crew=OneHost() if hosts is None or place.index else Leader(place, hosts),
        unrecorded=unrecorded,
        steps=planned.graph.steps,
        code=code,
    )
    for step in planned.of(Decision.SERVE):
        assert step.build is not None  # what is served has a build
        state.builds[step.id] = step.build
    if hosts is not None and place.index:
        from marin.execution.taking_part import take_part  # noqa: PLC0415  # most runs have one host

        line = f"host {place.index} of {place.count} takes part: host 0 tells how the run goes"
        print(line, file=sys.stderr, flush=True)
        take_part(state, planned, place, hosts)
    elif planned.to_make:
        ensure_format(store)
        RunLoop(state, planned).carry_out()
    else:
        shown.ended(interrupted=False)
    for handle in handles:
        if handle.id not in state.builds:
            raise LeftOutError(f"{handle.id} is not built, and --only leaves it out: all that --only names is built")
    return tuple(state.artifact(handle.id) for handle in handles)


def _about(handles: Sequence[Step]) -> str:
    """Which run this is: those that do not ask for the same meet nobody."""
    for handle in handles:
        check_handle(handle)
    return f"the run of {', '.join(str(handle.id) for handle in handles)}"


_NOTHING = Observation()


def _open(options: RunOptions) -> tuple[Prefix, LocalStore]:
    prefix = resolve_prefix(options.prefix, environ=os.environ, cwd=working_folder())
    return prefix, open_store(prefix.location, durable=is_durable(options, os.environ))


def _only(graph: StepGraph, names: Sequence[str]) -> frozenset[ArtifactId] | None:
    if not names:
        return None
    chosen = set[ArtifactId]()
    for name in names:
        found = [id_ for id_ in graph.steps if name in (id_.name, str(id_))]
        if not found:
            raise ConfigurationError(f"--only {name}: no step of that name. {_steps_like(name, graph)}")
        chosen.update(found)
    return frozenset(chosen)


def _steps_like(name: str, graph: StepGraph) -> str:
    # Of a mistyped name only: its module takes longer to import than most plans.
    from marin.execution.catalog import near_names  # noqa: PLC0415

    known = sorted({id_.name for id_ in graph.steps})
    if near := near_names(name.partition("@")[0], known):
        return f"Did you mean {' or '.join(near)}?"
    more = f" and {len(known) - 10:,} more" if len(known) > 10 else ""
    return f"The steps are: {', '.join(known[:10])}{more}"


def _code(planned: Plan) -> dict[ArtifactId, RecordedCode]:
    """The code of what will be made, as its source is now: it may be edited before the step has run."""
    reader = CodeReader()
    functions = {step.id: step.step.run for step in planned.to_make}
    return {id_: reader.code_of(function) for id_, function in functions.items() if function is not None}


def _code_of_all_hosts(planned: Plan, code: Mapping[ArtifactId, RecordedCode]) -> dict[ArtifactId, str]:
    """The digest of the author's own code of each step that all hosts make."""
    return {
        step.id: hashlib.sha256(msgspec.json.encode(code[step.id].modules, order="deterministic")).hexdigest()[:16]
        for step in planned.to_make
        if isinstance(step.step.run, RemoteFunction) and step.step.run.all_hosts and step.id in code
    }


def _once(function: Callable[[], dict[str, Any]]) -> Callable[[], dict[str, Any]]:
    """``function``, called at most once, at the first need."""
    lock = threading.Lock()
    kept: list[dict[str, Any]] = []

    def get() -> dict[str, Any]:
        with lock:
            if not kept:
                kept.append(function())
            return kept[0]

    return get
