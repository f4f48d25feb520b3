"""Steps that run in a process of their own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from marin.executors.resources import ResourceConfig


@dataclass(frozen=True, kw_only=True)
class RemoteFunction:
    """A step function, or its ``module:function`` name, with where it runs. Where it runs is never identity."""

    function: Callable[..., Any] | str
    resources: ResourceConfig
    resumable: bool = False


def remote(
    function: Callable[..., Any] | str,
    *,
    resources: ResourceConfig | str = "cpu",
    resumable: bool = False,
) -> RemoteFunction:
    """Run ``function`` in a process of its own: own session, own log file, ended with its parent.

    ``function`` takes the config and returns the step's artifact. As ``"module:function"`` only the process of the
    step imports the module, so that heavy libraries stay out of the script that describes the pipeline.
    ``resumable``: the function can go on from what an earlier attempt of the same recipe left in ``output_path``.

    >>> remote("my_project.training:train", resources="cuda:0").resources.device
    Device(kind='cuda', index=0)
    """
    return RemoteFunction(function=function, resources=ResourceConfig.parse(resources), resumable=resumable)
