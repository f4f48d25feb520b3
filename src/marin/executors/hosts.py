"""Which of several hosts this process is, as its environment says."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from marin.errors import ConfigurationError

COUNT_VARIABLE, INDEX_VARIABLE, COORDINATOR_VARIABLE = "MARIN_HOSTS", "MARIN_HOST", "MARIN_COORDINATOR"

WAIT_VARIABLE = "MARIN_HOSTS_WAIT"
"""For how many seconds the hosts wait for each other to come."""

WAIT_SECONDS = 300.0

_ADDRESS = re.compile(r"(\[[0-9a-fA-F:.]+\]|[^\s:\[\]]+):(\d+)")


@dataclass(frozen=True, kw_only=True)
class HostPlace:
    """``index``, from 0, of ``count`` processes; host 0 listens at ``address`` and ``port``."""

    index: int = 0
    count: int = 1
    address: str = ""
    port: int = 0
    wait_seconds: float = WAIT_SECONDS

    @classmethod
    def of(cls, environment: Mapping[str, str]) -> HostPlace:
        """What ``environment`` says. Raises ``ConfigurationError`` for a part that is missing or can't be.

        >>> HostPlace.of({"MARIN_HOSTS": "2", "MARIN_HOST": "1", "MARIN_COORDINATOR": "node7:12400"}).address
        'node7'
        """
        names = (COUNT_VARIABLE, INDEX_VARIABLE, COORDINATOR_VARIABLE)
        given = {name: environment[name].strip() for name in names if environment.get(name, "").strip()}
        if not given:
            return cls()
        if missing := [name for name in names if name not in given]:
            raise ConfigurationError(
                f"{', '.join(given)} {'is' if len(given) == 1 else 'are'} set, but {' and '.join(missing)} "
                f"{'is' if len(missing) == 1 else 'are'} not: a training on several hosts needs all three "
                f"({COUNT_VARIABLE}=2 {INDEX_VARIABLE}=0 {COORDINATOR_VARIABLE}=node7:12400); without any it runs alone"
            )
        count = _whole(COUNT_VARIABLE, given[COUNT_VARIABLE], least=1)
        index = _whole(INDEX_VARIABLE, given[INDEX_VARIABLE], least=0)
        if index >= count:
            raise ConfigurationError(
                f"{INDEX_VARIABLE}={index}, but with {COUNT_VARIABLE}={count} hosts are numbered from 0 to {count - 1}"
            )
        match = _ADDRESS.fullmatch(given[COORDINATOR_VARIABLE])
        if match is None or not 0 < int(match[2]) < 65536:
            raise ConfigurationError(
                f"{COORDINATOR_VARIABLE}={given[COORDINATOR_VARIABLE]!r} is no address: give the name of host 0 and a "
                "free port there, such as node7:12400"
            )
        return cls(
            index=index,
            count=count,
            address=match[1].strip("[]"),
            port=int(match[2]),
            wait_seconds=_seconds(environment.get(WAIT_VARIABLE, "").strip()),
        )

    def beside(self, port: int) -> str:
        """What ``MARIN_COORDINATOR`` says of another port of host 0."""
        return f"[{self.address}]:{port}" if ":" in self.address else f"{self.address}:{port}"

    def free_port(self) -> int:
        """A port of this machine for something else than ``port``."""
        import socket  # noqa: PLC0415  # every run reads this module, few have several hosts

        family = socket.AF_INET6 if ":" in self.address else socket.AF_INET
        with socket.socket(family) as probe:
            probe.bind(("", 0))
            return probe.getsockname()[1]


def _whole(name: str, text: str, *, least: int) -> int:
    if not re.fullmatch(r"[0-9]{1,9}", text) or int(text) < least:
        raise ConfigurationError(f"{name}={text!r} is not a whole number, {least} or more")
    return int(text)


def _seconds(text: str) -> float:
    if not text:
        return WAIT_SECONDS
    if not re.fullmatch(r"[0-9]{1,9}(\.[0-9]+)?", text):
        raise ConfigurationError(f"{WAIT_VARIABLE}={text!r} is not a number of seconds")
    return float(text)
