"""Hosts that are threads of this process."""

from __future__ import annotations

import socket
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from marin.executors.roll_call import RollCall
from tests.executors.processes import PATIENCE

_KEPT: list[socket.socket] = []


def free_port() -> int:
    """A port for a server that is started later. It stays bound, so that nobody else gets it until then.

    Linux lets a second socket have it, and listen, if both allow that, as servers do.
    """
    probe = socket.socket()
    probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    probe.bind(("", 0))
    _KEPT.append(probe)
    return probe.getsockname()[1]


def on_hosts(count: int, work: Callable[[RollCall], Any]) -> list[Any]:
    """What ``work`` gave, or raised, on each of so many hosts."""
    port = free_port()

    def one(index: int) -> Any:
        try:
            with RollCall(index, count) as hosts:
                hosts.come_together("127.0.0.1", port, about="x", seconds=PATIENCE, offer=lambda: 7)
                return work(hosts)
        except Exception as fault:  # noqa: BLE001  # looked at by the test
            return fault

    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(one, range(count)))
