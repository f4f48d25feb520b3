"""Steps that run in a process of their own."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from marin.errors import ConfigurationError
from marin.execution.retrying import RetryOn
from marin.executors.quantities import parse_duration
from marin.executors.resources import ResourceConfig

GRACE_SECONDS = 10.0
"""How long a step may take to save its work when it is stopped, before it is killed, unless it says otherwise."""

_MAX_RETRIES = 1000

Resumable = bool | Literal["any_recipe"]
"""Whether a step may go on from what an earlier attempt left, and whether that attempt must have had its recipe."""


@dataclass(frozen=True, kw_only=True)
class RemoteFunction:
    """A step function, or its ``module:function`` name, with where it runs. Where it runs is never identity."""

    function: Callable[..., Any] | str
    resources: ResourceConfig
    resumable: Resumable = False
    retries: int = 0
    retry_on: RetryOn = "crash"
    timeout: float | None = None
    grace: float = GRACE_SECONDS
    env: tuple[tuple[str, str], ...] = ()
    all_hosts: bool = False

    @property
    def limit_seconds(self) -> float | None:
        """How long one try may take: the shorter one of ``timeout`` and what the resources say."""
        limits = [limit for limit in (self.timeout, self.resources.time) if limit is not None]
        return min(limits, default=None)

    def unset_env(self) -> dict[str, str]:
        """Of ``env`` what is not set here."""
        return {name: value for name, value in self.env if name not in os.environ}


def remote(
    function: Callable[..., Any] | str,
    *,
    resources: ResourceConfig | str = "cpu",
    resumable: Resumable = False,
    retries: int = 0,
    retry_on: RetryOn = "crash",
    timeout: float | str | None = None,
    grace: float | str = GRACE_SECONDS,
    env: Mapping[str, str] | None = None,
    all_hosts: bool = False,
) -> RemoteFunction:
    """Run ``function`` in a process of its own: own session, own log file, ended with its parent.

    ``function`` takes the config and returns the step's artifact. As ``"module:function"`` only the process of the
    step imports the module, so that heavy libraries stay out of the script that describes the pipeline.
    ``resumable``: the function can go on from what an earlier attempt of the same recipe left in ``output_path``; what
    one of another recipe left is removed. With ``"any_recipe"`` it is given that, too, and is to refuse what does not
    fit.

    ``retries``: how often it is tried again within a run, when its process has crashed (killed, out of memory, ended
    without an answer, or over its ``timeout``); with ``retry_on="error"`` also when it raised something. ``timeout``:
    seconds, or text such as ``"2h"``, after which a try is told to save its work (SIGTERM). ``grace``: how long it may
    take for that, whoever stops it, before it is killed. ``env``: environment variables that its process begins with,
    where whoever runs it has not set them; what decides the artifact belongs into the config. ``all_hosts``: in a run
    on several hosts the function runs on each of them, in a process of its own, with the same config; what it returns
    on host 0 counts. None of it is identity.

    >>> remote("my_project.training:train", resources="cuda:0", retries=2, timeout="2h").timeout
    7200.0
    """
    if isinstance(function, RemoteFunction):
        raise ConfigurationError("remote was given what remote has returned: call it once, with all that it is to know")
    return RemoteFunction(
        function=function,
        resources=ResourceConfig.parse(resources),
        resumable=_checked_resumable(resumable),
        retries=_checked_retries(retries),
        retry_on=_checked_retry_on(retry_on),
        timeout=None if timeout is None else parse_duration(timeout, "timeout"),
        grace=parse_duration(grace, "grace"),
        env=_checked_env({} if env is None else env),
        all_hosts=all_hosts,
    )


def _checked_resumable(resumable: Any) -> Resumable:
    if not isinstance(resumable, bool) and resumable != "any_recipe":
        raise ConfigurationError(
            f"resumable={resumable!r}: write True, False or 'any_recipe' (it is given what another recipe left, too)"
        )
    return resumable


def _checked_env(env: Any) -> tuple[tuple[str, str], ...]:
    if not isinstance(env, Mapping):
        raise ConfigurationError(f"env={env!r}: give a dict from names of variables to their values")
    for name, value in env.items():
        if not isinstance(name, str) or not name or "=" in name or not isinstance(value, str) or "\0" in name + value:
            raise ConfigurationError(
                f"env={{{name!r}: {value!r}}}: names and values are text, such as {{'OMP_NUM_THREADS': '4'}}"
            )
    return tuple(sorted(env.items()))


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
