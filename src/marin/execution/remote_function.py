"""Steps that run in a process of their own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from marin.errors import ConfigurationError
from marin.execution.retrying import RetryOn
from marin.executors.quantities import parse_duration
from marin.executors.resources import ResourceConfig

_MAX_RETRIES = 1000


@dataclass(frozen=True, kw_only=True)
class RemoteFunction:
    """A step function, or its ``module:function`` name, with where it runs. Where it runs is never identity."""

    function: Callable[..., Any] | str
    resources: ResourceConfig
    resumable: bool = False
    retries: int = 0
    retry_on: RetryOn = "crash"
    timeout: float | None = None

    @property
    def limit_seconds(self) -> float | None:
        """How long one try may take: the shorter one of ``timeout`` and what the resources say."""
        limits = [limit for limit in (self.timeout, self.resources.time) if limit is not None]
        return min(limits, default=None)


def remote(
    function: Callable[..., Any] | str,
    *,
    resources: ResourceConfig | str = "cpu",
    resumable: bool = False,
    retries: int = 0,
    retry_on: RetryOn = "crash",
    timeout: float | str | None = None,
) -> RemoteFunction:
    """Run ``function`` in a process of its own: own session, own log file, ended with its parent.

    ``function`` takes the config and returns the step's artifact. As ``"module:function"`` only the process of the
    step imports the module, so that heavy libraries stay out of the script that describes the pipeline.
    ``resumable``: the function can go on from what an earlier attempt of the same recipe left in ``output_path``.

    ``retries``: how often it is tried again within a run, when its process has crashed (killed, out of memory, ended
    without an answer, or over its ``timeout``); with ``retry_on="error"`` also when it raised something. ``timeout``:
    seconds, or text such as ``"2h"``, after which a try is told to save its work (SIGTERM), and is killed 10 seconds
    later. None of it is identity.

    >>> remote("my_project.training:train", resources="cuda:0", retries=2, timeout="2h").timeout
    7200.0
    """
    if isinstance(function, RemoteFunction):
        raise ConfigurationError("remote was given what remote has returned: call it once, with all that it is to know")
    return RemoteFunction(
        function=function,
        resources=ResourceConfig.parse(resources),
        resumable=resumable,
        retries=_checked_retries(retries),
        retry_on=_checked_retry_on(retry_on),
        timeout=None if timeout is None else parse_duration(timeout, "timeout"),
    )


def _checked_retries(retries: Any) -> int:
    if not isinstance(retries, int) or isinstance(retries, bool) or not 0 <= retries <= _MAX_RETRIES:
        raise ConfigurationError(
            f"retries={retries!r} is not a number of retries: give one from 0 (the default) to {_MAX_RETRIES}"
        )
    return retries


def _checked_retry_on(retry_on: Any) -> RetryOn:
    if retry_on not in ("crash", "error"):
        raise ConfigurationError(
            f"retry_on={retry_on!r}: write 'crash' (its process ended without an answer) or 'error' (it raised, too)"
        )
    return retry_on
