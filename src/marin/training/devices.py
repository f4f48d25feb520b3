"""The device that a step was given, as JAX knows it."""

from __future__ import annotations

import os
from typing import Any, TypeAlias

import jax

from marin.errors import DeviceNotFoundError
from marin.executors.devices import GPUS_VARIABLE
from marin.executors.resources import Device, ResourceConfig

JaxDevice: TypeAlias = Any
"""A ``jax.Device``, which type checkers take for a variable."""


def find_device(name: str) -> JaxDevice:
    """The device called ``name``: ``cpu``, ``cuda:0``, ``tpu``. ``DeviceNotFoundError`` says what is there instead."""
    device = ResourceConfig.parse(name).device
    try:
        present = jax.devices(device.kind)
    except RuntimeError:
        present = []
    index = position(device)
    if index < len(present):
        return present[index]
    raise DeviceNotFoundError(
        f"there is no {name} in this machine for JAX: present {_present()}. {_remedy(device.kind)}"
    )


def position(device: Device) -> int:
    """The number of ``device`` among those that this process sees: its run has given it some, numbered anew."""
    index = device.index or 0
    given = os.environ.get(GPUS_VARIABLE, "").split(",") if device.kind == "cuda" and device.index is not None else []
    return given.index(str(index)) if str(index) in given else index


def _present() -> str:
    names = [f"{_kind(device)}:{number}" for number, device in enumerate(jax.devices())]
    return ("is " if len(names) == 1 else "are ") + ", ".join(names)


def _kind(device: JaxDevice) -> str:
    return "cuda" if device.platform == "gpu" else device.platform


def _remedy(kind: str) -> str:
    if kind == "cuda":
        return "Choose one of these, or install JAX for CUDA: pip install 'jax[cuda12]'"
    if kind == "tpu":
        return "Choose one of these, or install JAX for TPU: pip install 'jax[tpu]'"
    return "Choose one of these"
