"""How a run goes about its work; none of it is identity."""

from __future__ import annotations

import contextlib
from collections.abc import Generator, Mapping
from dataclasses import dataclass

from marin.errors import ConfigurationError
from marin.execution.ambient import Ambient
from marin.executors.executor import LOG_BYTES

LEASE_SECONDS = 90.0
"""How long a silent holder keeps the lease. Three missed heartbeats."""


MIN_LOG_BYTES = 4096
"""Less would not hold the traceback of an error."""

RETRY_SECONDS = 2.0
"""The pause before the first retry: what made a step crash may need a moment to pass."""


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """How a run goes about its work.

    - ``prefix``: the store; ``None``: ``MARIN_PREFIX``, else ``./marin_store``.
    - ``region``: what ``ctx.region`` says.
    - ``only``: names, or ``name@version``, of the steps that may be built; the rest is taken as it is. Empty: all.
    - ``max_concurrent``: at most so many steps at a time; ``None``: as many as the machine has cores, memory and
      devices for. More than it has cores: they share the cores.
    - ``fail_fast``: start nothing more once a step has failed.
    - ``durable``: force what is published onto the disk; ``None``: ``MARIN_DURABLE``, else yes.
    - ``lease_seconds``: how long a silent builder keeps its lease.
    - ``retry_seconds``: the pause before the first retry of a step; each further one is twice as long, up to a minute.
    - ``log_bytes``: how much of the disk the log of one attempt takes at most. Its beginning and its end are kept.
    """

    prefix: str | None = None
    region: str | None = None
    only: tuple[str, ...] = ()
    max_concurrent: int | None = None
    fail_fast: bool = False
    durable: bool | None = None
    lease_seconds: float = LEASE_SECONDS
    retry_seconds: float = RETRY_SECONDS
    log_bytes: int = LOG_BYTES

    def __post_init__(self) -> None:
        given: object = self.only
        if isinstance(given, str):
            raise ConfigurationError(f"only={given!r} is one name: write only=({given!r},), a tuple of names")
        if self.max_concurrent is not None and self.max_concurrent < 1:
            raise ConfigurationError(f"max_concurrent is {self.max_concurrent}: at least one step must be able to run")
        if self.lease_seconds <= 0:
            raise ConfigurationError(f"lease_seconds is {self.lease_seconds}: give a time in seconds above 0")
        if self.retry_seconds < 0:
            raise ConfigurationError(f"retry_seconds is {self.retry_seconds}: give a time in seconds, or 0")
        if self.log_bytes < MIN_LOG_BYTES:
            raise ConfigurationError(f"log_bytes is {self.log_bytes}: a log needs {MIN_LOG_BYTES:,} bytes at least")


def is_durable(options: RunOptions, environ: Mapping[str, str]) -> bool:
    """Whether to force data onto the disk: the option, else ``MARIN_DURABLE`` (``0`` or ``1``), else yes."""
    if options.durable is not None:
        return options.durable
    text = environ.get("MARIN_DURABLE", "1")
    if text not in ("0", "1"):
        raise ConfigurationError(f"MARIN_DURABLE={text!r}: set it to 1 (the default) or 0")
    return text == "1"


_OPTIONS = Ambient[RunOptions]("run_options")


def ambient_options() -> RunOptions:
    """The options of the surrounding ``run_options``, else the defaults."""
    return _OPTIONS.get() or RunOptions()


@contextlib.contextmanager
def run_options(options: RunOptions) -> Generator[RunOptions]:
    """Runs that are started inside, and say nothing else, use ``options``: how the command line reaches a script."""
    with _OPTIONS.use(options):
        yield options
