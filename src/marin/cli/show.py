"""Tell all that is known about an artifact: state, place, recipe, inputs, result, and how it came to be.

Secrets are left out. The fingerprint can be copied into expected_fingerprint=.

example:
  marin show checkpoints/poet@2026.07.01
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

import msgspec

from marin.cli.store_access import add_artifact_argument, add_store_arguments, found, opened
from marin.errors import MarinError
from marin.execution.artifact import Artifact, at_path
from marin.execution.catalog import Condition, Entry, dependents
from marin.execution.failure import first_line, shortened
from marin.execution.meter import duration, size
from marin.execution.record import Attempt, Build, FailedTry, Record, data_path
from marin.execution.redaction import redacted_record, secret_values
from marin.execution.results import decode_result
from marin.storage.local import LocalStore
from marin.storage.owner import describe

_LOOKED_INTO = {
    "marin.TokenizedCache": (
        "marin.processing.tokenize.tokenize",
        "TokenizedCache",
        "marin.processing.tokenize.inspection",
    )
}
"""Artifact types of which more is shown than the record: module, class, and the module whose ``facts`` tells it."""

_FINGERPRINT_DIGITS = 16
_KEY_WIDTH = 12


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of the command."""
    add_artifact_argument(parser)
    add_store_arguments(parser, json=True)


def execute(arguments: argparse.Namespace) -> int:
    """Carry out the command. Returns the exit code."""
    _, store = opened(arguments)
    entry = found(store, arguments.artifact)
    if entry.record is None:
        assert entry.fault is not None  # an entry has one or the other
        raise entry.fault
    record: Record = msgspec.convert(
        redacted_record(msgspec.to_builtins(entry.record), secret_values(os.environ)), Record
    )
    if arguments.json:
        print(json.dumps(_as_json(store, entry, record), indent=1))
        return 0
    print(entry.id)
    for key, value in _facts(store, entry, record):
        _print_fact(key, value)
    if record.build is not None and record.build.artifact_type in _LOOKED_INTO:
        for key, value in _inside(store, entry, record.build):
            _print_fact(key, value)
    return 0


def _as_json(store: LocalStore, entry: Entry, record: Record) -> dict[str, Any]:
    return {
        "id": str(entry.id),
        "state": entry.condition.value,
        "path": None if record.build is None else _place(store, entry, record.build),
        "fingerprint": None if record.build is None else _fingerprint(record.build),
        "log": _log(store, entry),
        "dependents": [str(id_) for id_ in dependents(store, entry.id)],
        "record": msgspec.to_builtins(record),
    }


def _facts(store: LocalStore, entry: Entry, record: Record) -> Iterator[tuple[str, Any]]:
    yield "state", entry.condition.value
    yield "address", store.url(entry.id.address)
    if record.attempt is not None:
        yield from _attempt_facts(entry, record.attempt)
    if record.build is not None:
        yield from _build_facts(store, entry, record.build)
    yield "used by", [str(id_) for id_ in dependents(store, entry.id)]
    yield "log", _log(store, entry)


def _attempt_facts(entry: Entry, attempt: Attempt) -> Iterator[tuple[str, Any]]:
    yield "attempt", f"{attempt.build_id}, begun {attempt.started}"
    yield (
        "builder",
        describe(attempt.lease.owner) + (", which has ended" if entry.condition is Condition.INTERRUPTED else ""),
    )
    if attempt.number > 1:
        yield "try", f"{attempt.number} of this run"
    if attempt.stop is not None:
        yield "stop", f"asked for by {attempt.stop.by} at {attempt.stop.at}"
    yield "error", attempt.error
    yield "at", attempt.frame
    yield "failed tries", [_try(failed) for failed in attempt.earlier]


def _build_facts(store: LocalStore, entry: Entry, build: Build) -> Iterator[tuple[str, Any]]:
    yield "data", _place(store, entry, build)
    yield "adopted from", build.source
    yield "built", f"{build.finished} in {duration(build.seconds)}"
    yield "build id", build.build_id
    if build.manifest is not None:
        files = "1 file" if build.manifest.files == 1 else f"{build.manifest.files:,} files"
        yield "size", f"{size(build.manifest.bytes)} in {files}, sha256 {build.manifest.digest[:16]}"
    yield "fingerprint", _fingerprint(build)
    yield "type", build.artifact_type
    yield "inputs", [f"{dep.name}@{dep.version} (build {dep.build_id})" for dep in build.deps]
    yield "config", build.config
    yield "runtime", build.runtime_args
    yield "result", build.result
    yield "failed tries", [_try(failed) for failed in build.earlier]
    yield "provenance", build.provenance
    if build.code is not None:
        yield "code", {name: ", ".join(module.definitions) for name, module in build.code.modules.items()}
        yield "packages", build.code.distributions
        yield "no source", build.code.unknown


def _inside(store: LocalStore, entry: Entry, build: Build) -> Iterator[tuple[str, Any]]:
    """What is in the data, for types that can tell. What can't be read is said, and the rest was shown all the same."""
    module, cls, function = _LOOKED_INTO[build.artifact_type]
    try:
        artifact_type: type[Artifact] = getattr(importlib.import_module(module), cls)
        artifact = at_path(
            decode_result(artifact_type, build.result, what=f"record of {entry.id}"), _place(store, entry, build)
        )
        inspection = importlib.import_module(function)
        yield from inspection.facts(artifact)
    except (MarinError, ImportError) as fault:
        yield "inside", f"can't be shown: {fault}"


def _try(failed: FailedTry) -> str:
    return f"{failed.started}: {shortened(first_line(failed.error) or 'failed', 200)}"


def _fingerprint(build: Build) -> str:
    return f"{build.fingerprint.scheme}:{build.fingerprint.digest[:_FINGERPRINT_DIGITS]}"


def _place(store: LocalStore, entry: Entry, build: Build) -> str:
    place = data_path(entry.id.address, build)
    return place if build.source is not None else store.url(place)


def _log(store: LocalStore, entry: Entry) -> str | None:
    if entry.log is None or not os.path.exists(place := store.url(entry.log)):
        return None
    return place


def _print_fact(key: str, value: Any) -> None:
    if value is None or value in ({}, [], (), ""):
        return
    if isinstance(value, Mapping | list | tuple):
        print(f"  {key}")
        for line in _tree(value):
            print(f"    {line}")
    else:
        lines = str(value).replace("\n", f"\n  {'':{_KEY_WIDTH}}  ")  # of an error
        print(f"  {key:<{_KEY_WIDTH}}  {lines}")


def _tree(value: Any) -> Iterator[str]:
    """Nested JSON, a line for each leaf; short inner values stay on one line."""
    if isinstance(value, Mapping):
        pairs = [(f"{key}: ", inner) for key, inner in cast("Mapping[str, Any]", value).items()]
    else:
        pairs = [("" if isinstance(inner, str) else "- ", inner) for inner in cast("Sequence[Any]", value)]
    for head, inner in pairs:
        if isinstance(inner, Mapping | list | tuple) and len(json.dumps(inner, default=str)) > 60:
            yield head.rstrip()
            yield from (f"  {line}" for line in _tree(inner))
        else:
            yield head + (inner if isinstance(inner, str) else json.dumps(inner, default=str))
