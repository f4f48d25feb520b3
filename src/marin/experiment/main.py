"""The last line of an experiment's script: ``experiment_main(build)``.

The same options work for ``python script.py`` and for ``marin run script.py``.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import sys
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from marin.errors import ConfigurationError, InvalidNameError, InvalidVersionError, LeftOutError
from marin.execution.ambient import Ambient
from marin.execution.console import json_reporter, plan_as_json, render_plan, terminal_reporter
from marin.execution.graph import Step
from marin.execution.identity import checked_name, checked_version
from marin.execution.lazy import ArtifactStep
from marin.execution.options import RunOptions
from marin.execution.preflight import unrunnable
from marin.execution.runner import examine, run
from marin.execution.version_codex import VersionCodex, build_context
from marin.executors.local import LocalExecutor
from marin.experiment.command_line import parsed
from marin.experiment.ending import EXIT_FAILED, is_expected, tell_fault
from marin.storage.prefix import resolve_prefix, working_folder

Targets = Step | Sequence[Step] | Mapping[Any, Step]
"""What ``build`` returns: one handle, or several."""


@dataclass(frozen=True, kw_only=True)
class Launch:
    """What the command line that started the script has decided for it."""

    options: RunOptions
    version: str | None = None
    overrides: Mapping[str, str] = field(default_factory=dict[str, str])


_LAUNCH = Ambient[Launch]("launch")


@contextlib.contextmanager
def launched(launch: Launch) -> Generator[None]:
    """An ``experiment_main`` inside obeys ``launch``, not the command line: how ``marin run`` reaches it."""
    with _LAUNCH.use(launch):
        yield


def experiment_main(build: Callable[[], Targets], *, version: str = "dev", argv: Sequence[str] | None = None) -> Any:
    """Run what ``build()`` returns, a handle or a sequence or mapping of handles, with the options of the command line.

    ``version`` is for handles that leave theirs open, unless ``--version`` says otherwise. Returns the artifacts in
    the shape that ``build`` gave; if ``--only`` leaves one of them out that is not built, the process ends when what it
    names is built. A failure is printed and ends the process with code 1, an interruption with 130 or 143. With
    ``--plan`` nothing runs: the plan is printed, and the process ends.
    """
    launch = _LAUNCH.get()
    if launch is not None:
        codex = VersionCodex(default=launch.version or version, overrides=launch.overrides)
        targets = _built(build, codex)
        return _in_shape(targets, run(*_handles(targets), options=launch.options))
    arguments = parsed(_parser(), argv)
    options = run_options_of(arguments)
    try:
        # What is printed meanwhile is no JSON.
        with contextlib.redirect_stdout(sys.stderr) if arguments.json else contextlib.nullcontext():
            targets = _built(build, codex_of(arguments, version), note=version_note(arguments))
        if not arguments.plan:
            if not arguments.json:
                return _in_shape(targets, run(*_handles(targets), options=options, reporter=terminal_reporter()))
            reporter = json_reporter(sys.stdout)
            with contextlib.redirect_stdout(sys.stderr):
                return _in_shape(targets, run(*_handles(targets), options=options, reporter=reporter))
        code = print_plan(_handles(targets), options, as_json=arguments.json)
    except LeftOutError as left_out:
        tell_left_out(left_out)
        code = 0
    except (Exception, KeyboardInterrupt) as fault:
        if not is_expected(fault):
            raise
        code = tell_fault(fault, sys.stderr)
    raise SystemExit(code)


def tell_left_out(left_out: LeftOutError) -> None:
    """Say why the script ends where its artifacts would be returned."""
    print(f"note: {left_out}; the script ends here, as it would use it", file=sys.stderr)


def build_options(argv: Sequence[str] | None = None, *, version: str = "dev") -> tuple[RunOptions, VersionCodex]:
    """The options of a run, and the versions of its handles, read from a command line. Usage errors end the process.

    >>> build_options(["--max-concurrent", "2", "--override", "tokens=2026.07.01"])[1].overrides
    {'tokens': '2026.07.01'}
    """
    parser = argparse.ArgumentParser(allow_abbrev=False)
    add_run_arguments(parser)
    arguments = parsed(parser, argv)
    return run_options_of(arguments), codex_of(arguments, version)


JSON_HELP = "JSON lines on stdout, one object a line; what the script prints goes to stderr"
"""Of ``--json``, where the command runs the script and so has all that it prints."""

_OWN_JSON_HELP = (
    "JSON lines on stdout, one object a line; what build and the steps print goes to stderr, what the script itself "
    "prints before and after them to stdout ('marin run SCRIPT --json' leaves only JSON there)"
)


def add_run_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options that every way to start a run understands. Read them with ``run_options_of`` and ``codex_of``."""
    add_plan_arguments(parser)
    group = parser.add_argument_group("how to run")
    group.add_argument("--max-concurrent", metavar="N", type=_positive, help="at most N steps at a time")
    group.add_argument("--fail-fast", action="store_true", help="start nothing more once a step has failed")


def add_plan_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options that decide what a run does. Read them with ``run_options_of`` and ``codex_of``."""
    parser.set_defaults(max_concurrent=None, fail_fast=False)
    group = parser.add_argument_group("where, and what")
    group.add_argument("--prefix", metavar="PATH", help="the store (default: MARIN_PREFIX, else ./marin_store)")
    group.add_argument("--region", help="what ctx.region says")
    group.add_argument(
        "--only",
        metavar="NAME",
        action="append",
        default=[],
        help="build this step only, take the rest as it is (repeatable)",
    )
    group = parser.add_argument_group("versions of handles that leave theirs open")
    group.add_argument("--version", metavar="VERSION", type=_version, help="a date such as 2026.07.01, or dev")
    group.add_argument(
        "--override",
        metavar="NAME=VERSION",
        type=_override,
        action="append",
        default=[],
        help="the version of the handle called NAME (repeatable)",
    )


def run_options_of(arguments: argparse.Namespace) -> RunOptions:
    """How to run, as ``add_run_arguments`` has read it."""
    return RunOptions(
        prefix=arguments.prefix,
        region=arguments.region,
        only=tuple(arguments.only),
        max_concurrent=arguments.max_concurrent,
        fail_fast=arguments.fail_fast,
    )


def codex_of(arguments: argparse.Namespace, version: str) -> VersionCodex:
    """Which versions open handles get, as ``add_run_arguments`` has read it; ``version`` where nothing was said."""
    return VersionCodex(default=arguments.version or version, overrides=dict(arguments.override))


def version_note(arguments: argparse.Namespace) -> Callable[[str], None] | None:
    """What a build context is to call if the ``--version`` that was asked for has no effect: says so on stderr."""
    if arguments.version is None:
        return None
    return lambda text: print(f"note: {text}", file=sys.stderr)


def print_plan(handles: Sequence[Step], options: RunOptions, *, as_json: bool) -> int:
    """Print what a run of ``handles`` would do. The exit code: 0, or 1 if the run would be refused."""
    examined = examine(*handles, options=options)
    made, unable = examined.plan, unrunnable(examined.plan, LocalExecutor(), examined.store)
    prefix = resolve_prefix(options.prefix, environ=os.environ, cwd=working_folder())
    if as_json:
        document = {"prefix": prefix.location, "origin": prefix.origin, **plan_as_json(made, unable)}
        print(json.dumps(document, default=str))
    else:
        on_terminal = sys.stdout.isatty()
        width = shutil.get_terminal_size().columns if on_terminal else None
        print(f"store: {prefix.location} ({prefix.origin})")
        if prefix.hint:
            print(f"note: {prefix.hint}")
        print(render_plan(made, width=width, color=on_terminal and not os.environ.get("NO_COLOR")), end="")
        for fault in unable:
            print(f"error: {fault}")
    return EXIT_FAILED if made.errors or unable else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description="Build what this script describes; what is built already is served.", allow_abbrev=False
    )
    add_run_arguments(parser)
    parser.add_argument("--plan", action="store_true", help="say what would happen, and do nothing")
    parser.add_argument("--json", action="store_true", help=_OWN_JSON_HELP)
    return parser


def _built(build: Callable[[], Targets], codex: VersionCodex, note: Callable[[str], None] | None = None) -> Targets:
    given: Any = build
    if not callable(given):
        raise ConfigurationError(
            f"experiment_main takes a function that makes the handles, not {type(given).__name__}: "
            "write def build(): ... return handle, so that --version can reach them"
        )
    with build_context(codex, note=note):
        targets = build()
    handles = _handles(targets)
    for handle in cast("Sequence[Any]", handles):
        if not isinstance(handle, ArtifactStep):
            raise ConfigurationError(
                f"{_name(build)} returned {type(handle).__name__}, which is no handle: "
                "let it return an ArtifactStep, or a list or dict of them"
            )
    if not handles:
        raise ConfigurationError(f"{_name(build)} returned no handle: there is nothing to make")
    return targets


def _name(function: Callable[..., Any]) -> str:
    return f"{getattr(function, '__qualname__', repr(function))}()"


def _handles(targets: Targets) -> list[Step]:
    if isinstance(targets, Mapping):
        return list(targets.values())
    given: Any = targets
    return list(cast("Sequence[Step]", given)) if isinstance(given, list | tuple) else [given]


def _in_shape(targets: Targets, artifacts: tuple[Any, ...]) -> Any:
    """``artifacts`` as ``build`` arranged their handles."""
    if isinstance(targets, Mapping):
        return dict(zip(targets, artifacts, strict=True))
    return artifacts[0] if isinstance(targets, ArtifactStep) else artifacts


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of steps: give 1 or more")
    return int(text)


def _version(text: str) -> str:
    try:
        return checked_version(text, "handles that leave theirs open")
    except InvalidVersionError as fault:
        raise argparse.ArgumentTypeError(str(fault)) from fault


def _override(text: str) -> tuple[str, str]:
    name, equals, version = text.rpartition("=")
    if not equals:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not of the form NAME=VERSION, such as tokenized/poems=2026.07.01"
        )
    try:
        return checked_name(name), checked_version(version, name)
    except (InvalidNameError, InvalidVersionError) as fault:
        raise argparse.ArgumentTypeError(str(fault)) from fault
