"""Hosts that are threads of this process."""

from __future__ import annotations

import socket
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from marin.executors.roll_call import RollCall


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def on_hosts(count: int, work: Callable[[RollCall], Any]) -> list[Any]:
    """What ``work`` gave, or raised, on each of so many hosts."""
    port = free_port()

    def one(index: int) -> Any:
        try:
            with RollCall(index, count) as hosts:
                hosts.come_together("127.0.0.1", port, about="x", seconds=30, offer=lambda: 7)
                return work(hosts)
        except Exception as fault:  # noqa: BLE001  # looked at by the test
            return fault

    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(one, range(count)))
