"""From the command line that a record keeps to the command that compares its recipe with the script of today."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from marin.execution.identity import ArtifactId
from marin.execution.redaction import REDACTED
from marin.experiment.main import add_run_arguments

_TAKEN_OVER = ("region", "only", "version", "override")
"""Options that decide what the script describes. The store is the one that is being looked at."""


@dataclass(frozen=True)
class Comparison:
    """``command`` explains the artifact by its script; ``None`` if no script is known, and ``why_not`` says why."""

    command: str | None
    why_not: str | None = None


def comparison(id_: ArtifactId, provenance: Mapping[str, Any], *, prefix: str | None, cwd: Path) -> Comparison:
    """How to explain ``id_`` by the script that made it. ``prefix``: what ``--prefix`` says now, if anything."""
    command, folder = provenance.get("command"), provenance.get("cwd")
    if not isinstance(command, list) or not isinstance(folder, str):
        return Comparison(None, "the record keeps no command line")
    words = [str(word) for word in command]
    at = next((at for at, word in enumerate(words) if at > 0 and word.endswith(".py")), None)
    if at is None:
        return Comparison(None, "it was not made by a script")
    script = Path(folder, words[at])
    if not script.is_file():
        return Comparison(None, f"the script that made it, {script}, is not there any more")
    options, own = _split(words[at + 1 :], script, by_marin="run" in words[1:at])
    if REDACTED in " ".join([*options, *own]):
        return Comparison(None, "secrets were left out of the command line that made it")
    shown = str(script.relative_to(cwd)) if script.is_relative_to(cwd) else str(script)
    given = ["--prefix", prefix] if prefix is not None else []
    rest = ["--", *own] if own else []
    return Comparison(shlex.join(["marin", "why", str(id_), shown, *given, *options, *rest]))


def _split(words: Sequence[str], script: Path, *, by_marin: bool) -> tuple[list[str], list[str]]:
    """Options for Marin, and words for the script."""
    if by_marin:
        cut = words.index("--") if "--" in words else len(words)
        return _options(words[:cut])[0], list(words[cut + 1 :])
    if "experiment_main" not in script.read_text(encoding="utf-8", errors="replace"):
        return [], list(words)  # it reads its command line itself
    return _options(words)


def _options(words: Sequence[str]) -> tuple[list[str], list[str]]:
    parser = argparse.ArgumentParser(add_help=False, exit_on_error=False)
    add_run_arguments(parser)
    for flag in ("--json", "--plan"):
        parser.add_argument(flag, action="store_true")
    try:
        known, unknown = parser.parse_known_args(words)
    except (argparse.ArgumentError, SystemExit):
        return [], list(words)  # recorded by another Marin
    options: list[str] = []
    for name in _TAKEN_OVER:
        value = getattr(known, name)
        for each in value if isinstance(value, list) else [value] if value is not None else []:
            options += [f"--{name}", each if isinstance(each, str) else "=".join(each)]
    return options, unknown
