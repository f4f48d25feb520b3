"""Explain why a step would be built, served, left alone or refused. Nothing is written.

With SCRIPT: what a run of it would do with the step, what leads to that, how its recipe and those above it differ from
what is recorded, and which inputs were rebuilt since. Targets and versions are found as by 'marin plan'. Ends with 1 if
the step would be refused.

Without SCRIPT: what the records alone tell, and the command that compares them with the script.

example:
  marin why checkpoints/poet@2026.07.01 pretrain.py
"""

from __future__ import annotations

import argparse
import json
import os
import sys

from marin.cli.recorded_command import Comparison, comparison
from marin.cli.script_arguments import described_targets, script_file
from marin.cli.store_access import add_artifact_argument, found, opened
from marin.cli.why_answer import Answer, Holder
from marin.cli.why_json import answer_as_json
from marin.cli.why_text import answer_lines
from marin.errors import MarinError, NotBuiltError, StoreError
from marin.execution.ancestry import Ancestor, ancestry
from marin.execution.catalog import Entry, data_url, named_step, read_entry, versions
from marin.execution.code import code_of
from marin.execution.explain import Explanation, explain
from marin.execution.identity import ArtifactId
from marin.execution.plan_text import paint
from marin.execution.planning import Decision
from marin.execution.record import Build, State
from marin.execution.redaction import redact_text, redact_values, secret_values
from marin.execution.runner import examine
from marin.experiment.main import EXIT_FAILED, add_plan_arguments, run_options_of
from marin.storage.local import LocalStore
from marin.storage.owner import describe, is_alive_here, is_dead_here
from marin.storage.prefix import Prefix, working_folder


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of the command."""
    add_artifact_argument(parser)
    parser.add_argument(
        "script",
        metavar="SCRIPT",
        nargs="?",
        type=script_file,
        help="the Python file that describes it; its own arguments follow after --",
    )
    parser.add_argument("--json", action="store_true", help="one JSON document on stdout")
    add_plan_arguments(parser)


def execute(arguments: argparse.Namespace) -> int:
    """Carry out the command. Returns the exit code."""
    if arguments.script is None:
        if _has_plan_options(arguments):
            arguments.parser.error("--region, --only, --version, --override and words after -- need a SCRIPT")
        answer, prefix = _by_records(arguments)
    else:
        answer, prefix = _by_script(arguments)
    secrets = secret_values(os.environ)
    if arguments.json:
        document = {"store": prefix.location, "origin": prefix.origin, **answer_as_json(answer)}
        print(json.dumps(redact_values(document, secrets), indent=1, default=str))
    else:
        color = sys.stdout.isatty() and not os.environ.get("NO_COLOR")
        print(redact_text(paint(list(answer_lines(answer)), color=color), secrets), end="")
    told = answer.explanation
    return EXIT_FAILED if told is not None and told.planned.decision is Decision.REFUSE else 0


def _has_plan_options(arguments: argparse.Namespace) -> bool:
    given = (arguments.region, arguments.only, arguments.version, arguments.override, arguments.script_arguments)
    return any(given)


def _by_records(arguments: argparse.Namespace) -> tuple[Answer, Prefix]:
    prefix, store = opened(arguments)
    try:
        entry = found(store, arguments.artifact)
    except NotBuiltError as fault:
        stop = "" if str(fault).endswith("?") else "."
        raise NotBuiltError(
            f"{fault}{stop} To ask about what is not built yet, name the script that describes it: "
            f"marin why {arguments.artifact} SCRIPT"
        ) from None
    if entry.fault is not None:
        raise entry.fault
    provenance = {} if entry.build is None else entry.build.provenance
    compare_with = comparison(entry.id, provenance, prefix=arguments.prefix, cwd=working_folder())
    return _answer(store, entry.id, entry, comparison=compare_with), prefix


def _by_script(arguments: argparse.Namespace) -> tuple[Answer, Prefix]:
    targets = described_targets(arguments)
    examined = examine(*targets, options=run_options_of(arguments))
    id_ = named_step(examined.plan.graph.steps, arguments.artifact, where=str(arguments.script))
    run = examined.plan.steps[id_].step.run
    told = explain(
        examined.plan,
        id_,
        build=examined.observed[id_].build,
        others=_other_builds(examined.store, id_),
        code=None if run is None else code_of(run),
    )
    entry = None if told.planned.step.pin is not None else _entry(examined.store, id_)
    return _answer(examined.store, id_, entry, explanation=told), examined.prefix


def _answer(
    store: LocalStore,
    id_: ArtifactId,
    entry: Entry | None,
    *,
    explanation: Explanation | None = None,
    comparison: Comparison | None = None,
) -> Answer:
    return Answer(
        id=id_,
        entry=entry,
        data=data_url(store, entry) if entry is not None and entry.build is not None else None,
        log=_log(store, entry),
        holder=_holder(entry),
        ancestors=tuple(_ancestors(store, entry)),
        explanation=explanation,
        comparison=comparison,
    )


def _entry(store: LocalStore, id_: ArtifactId) -> Entry | None:
    """The record, unless it can't be read: the plan says why then."""
    try:
        entry = read_entry(store, id_)
    except (MarinError, OSError):
        return None
    return None if entry is None or entry.fault is not None else entry


def _other_builds(store: LocalStore, id_: ArtifactId) -> dict[ArtifactId, Build]:
    """The newest other version that has a complete build."""
    try:
        others = [ArtifactId(id_.name, version) for version in versions(store, id_.name) if version != id_.version]
    except (MarinError, OSError):
        return {}
    entries = ((other, _entry(store, other)) for other in others)
    return next(({other: entry.build} for other, entry in entries if entry is not None and entry.build is not None), {})


def _ancestors(store: LocalStore, entry: Entry | None) -> list[Ancestor]:
    if entry is None:
        return []
    inputs = entry.build.deps if entry.build is not None else entry.attempt.inputs if entry.attempt is not None else ()
    return ancestry(inputs, lambda id_: _build_or_fault(store, id_))


def _build_or_fault(store: LocalStore, id_: ArtifactId) -> Build | MarinError | None:
    try:
        entry = read_entry(store, id_)
    except (MarinError, OSError) as fault:
        return fault if isinstance(fault, MarinError) else StoreError(f"{id_}: {fault}")
    return None if entry is None else entry.fault or entry.build


def _holder(entry: Entry | None) -> Holder | None:
    if entry is None or entry.attempt is None or entry.record is None or entry.record.state is not State.BUILDING:
        return None
    lease = entry.attempt.lease
    life = "alive" if is_alive_here(lease.owner) else "ended" if is_dead_here(lease.owner) else "unknown"
    return Holder(name=describe(lease.owner), since=entry.attempt.started, life=life, renewals=lease.beat)


def _log(store: LocalStore, entry: Entry | None) -> str | None:
    if entry is None or entry.log is None or not os.path.exists(place := store.url(entry.log)):
        return None
    return place
