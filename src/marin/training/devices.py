"""The device that a step was given, as JAX knows it."""

from __future__ import annotations

import os
from typing import Any, TypeAlias

import jax

from marin.errors import DeviceNotFoundError
from marin.executors.devices import GPUS_VARIABLE
from marin.executors.resources import Device, ResourceConfig
from marin.training.mesh_config import MeshConfig

JaxDevice: TypeAlias = Any
"""A ``jax.Device``, which type checkers take for a variable."""


def find_devices(name: str, mesh: MeshConfig | None = None) -> list[JaxDevice]:
    """The devices that ``name`` stands for: all of a kind (``cpu``, ``cuda``, ``tpu``), or one (``cuda:0``).

    Of all of a kind a ``mesh`` of known size takes the first so many. Without one, of CPUs only one is taken: a second
    is there only if the user asked XLA for it. ``DeviceNotFoundError`` says what is there instead.

    Of several hosts each gives as many, and those of one stand together, in the order of the hosts.
    """
    hosts = jax.process_count()
    if hosts > 1:
        return _of_all_hosts(name, mesh, hosts)
    device = ResourceConfig.parse(name).device
    try:
        present = jax.devices(device.kind)
    except RuntimeError:
        present = []
    index = position(device)
    if device.index is None and present:
        wanted = mesh.num_devices if mesh else 1 if device.kind == "cpu" else len(present)
        if (wanted or 0) > len(present):
            hint = f", or set XLA_FLAGS=--xla_force_host_platform_device_count={wanted}, which makes so many of one CPU"
            raise DeviceNotFoundError(
                f"the mesh {mesh} takes {wanted} devices, but what JAX sees {_present()}: choose a smaller one"
                + hint * (device.kind == "cpu")
            )
        return present[:wanted]
    if index < len(present):
        return [present[index]]
    raise DeviceNotFoundError(
        f"there is no {name} in this machine for JAX: present {_present()}. {_remedy(device.kind)}"
    )


def _of_all_hosts(name: str, mesh: MeshConfig | None, hosts: int) -> list[JaxDevice]:
    device = ResourceConfig.parse(name).device
    try:
        present = jax.devices(device.kind)
    except RuntimeError:
        present = []
    by_host = [
        sorted((each for each in present if each.process_index == host), key=lambda each: each.id)
        for host in range(hosts)
    ]
    if device.index is not None:
        chosen = [each[position(device) :][:1] for each in by_host]
    else:
        total = mesh.num_devices if mesh else hosts if device.kind == "cpu" else None
        if total is not None and total % hosts:
            raise DeviceNotFoundError(
                f"the mesh {mesh} takes {total} devices, which {hosts} hosts can't give in equal parts: choose a "
                f"multiple of {hosts}"
            )
        chosen = [each[: None if total is None else total // hosts] for each in by_host]
        if total is not None and any(len(each) < total // hosts for each in chosen):
            chosen = [[] for _ in by_host]
    counts = [len(each) for each in chosen]
    if not all(counts) or len(set(counts)) > 1:
        told = ", ".join(str(len(each)) for each in by_host)
        raise DeviceNotFoundError(
            f"{name} for the mesh {mesh or 'of all devices'} is not there as often on each of {hosts} hosts: they have "
            f"{told} such devices. Each must give as many"
        )
    return [each for of_host in chosen for each in of_host]


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
