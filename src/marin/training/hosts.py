"""The hosts of a training: how they come together, and what they tell each other beside JAX.

A training on several hosts is one process on each, started with ``MARIN_HOSTS``, ``MARIN_HOST`` and
``MARIN_COORDINATOR``. ``marin.executors.roll_call`` carries what they say.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator
from typing import Any, Protocol

import jax
import msgspec

from marin import errors
from marin.errors import ConfigurationError, HostLostError, MarinError
from marin.executors.hosts import HostPlace
from marin.executors.roll_call import RollCall
from marin.storage.faults import translated_faults


class Hosts(Protocol):
    """All hosts of a training, as seen by one of them."""

    @property
    def index(self) -> int:
        """This one's number. 0 is the one that leads: it alone writes what the training leaves."""
        ...

    @property
    def count(self) -> int: ...

    def exchange(self, topic: str, value: Any = None) -> list[Any]:
        """What each host gave for ``topic``, as ``RollCall`` says."""
        ...

    def end_together(self) -> None:
        """Note that all hosts are about to stop for the same reason, so that none takes the others for lost."""
        ...


class OneHost:
    """A training on one host."""

    index, count = 0, 1

    def exchange(self, topic: str, value: Any = None) -> list[Any]:
        del topic
        return [value]

    def end_together(self) -> None:
        pass


def everywhere(hosts: Hosts, what: str, work: Callable[[], Any], *, path: str) -> list[Any]:
    """What ``work`` gave on each host, once it is done on all; what it raised on one is raised on all.

    ``path`` is what it writes to: for messages.
    """
    done, fault = None, None
    try:
        with translated_faults(path, writing=True):
            done = work()
    except MarinError as raised:
        fault = raised
    told = {"done": msgspec.to_builtins(done), "fault": fault and [type(fault).__name__, str(fault)]}
    answers = hosts.exchange(what, told)
    if fault is not None:
        raise fault
    for host, answer in enumerate(answers):
        if answer["fault"] is not None:
            kind, text = answer["fault"]
            raise getattr(errors, kind)(f"host {host}: {text}")
    return [answer["done"] for answer in answers]


@contextlib.contextmanager
def joined_hosts(place: HostPlace, *, about: str) -> Generator[Hosts]:
    """All hosts, once they have come together and JAX knows all their devices. To be asked before JAX has any.

    ``about`` says what for: a host that came for something else is not let in. Leaving it by an error ends the other
    hosts too; what is raised on them, and on this one if another is the cause, is ``HostLostError``. A process can take
    part once.
    """
    if place.count == 1:
        yield OneHost()
        return
    with RollCall(place.index, place.count) as hosts:
        service = hosts.come_together(
            place.address, place.port, about=about, seconds=place.wait_seconds, offer=place.free_port
        )
        _start_jax(place, service)
        hosts.at_end = jax.distributed.shutdown  # of host 0 the last, or JAX aborts those of the others
        try:
            yield hosts
        except jax.errors.JaxRuntimeError as fault:
            # What ends a host ends the collective operations of the others, in words that don't say so.
            if (reason := hosts.why_lost()) is not None:
                raise HostLostError(reason) from fault
            raise


def _start_jax(place: HostPlace, port: int) -> None:
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.config.update("jax_enable_preemption_service", False)  # it would take SIGTERM for itself
    jax.config.update("jax_enable_recoverability", True)  # otherwise it aborts the process, without a reason
    try:
        jax.distributed.initialize(
            place.beside(port),
            place.count,
            place.index,
            cluster_detection_method="deactivate",
            initialization_timeout=int(place.wait_seconds) + 1,
        )
    except RuntimeError as fault:
        raise ConfigurationError(
            f"this process can't take part as host {place.index} of {place.count}: {fault}. A training on several "
            "hosts runs in processes that have not used JAX before"
        ) from fault
