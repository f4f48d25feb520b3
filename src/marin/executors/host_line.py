"""The connections between several hosts: how they are made, and how messages travel on them.

A message is a line of JSON. Nothing that comes in can run anything.
"""

from __future__ import annotations

import contextlib
import logging
import socket
import threading
import time
from collections.abc import Iterable
from typing import Any

import msgspec

from marin.errors import ConfigurationError, HostLostError

BEAT_SECONDS = 5.0
"""How often a host says that it is there."""

SILENCE_SECONDS = 60.0
"""So long may a host say nothing. Its beats come from a thread, whatever else it does."""

GREETING = "marin hosts 1"
"""Which protocol is spoken: the first word of either side."""

_LOG = logging.getLogger(__name__)


class HostLine:
    """A connection that carries messages."""

    def __init__(self, connection: socket.socket) -> None:
        connection.settimeout(SILENCE_SECONDS)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket, self.heard_at = connection, time.monotonic()
        self._rest = b""
        self._sending = threading.Lock()

    def send(self, message: dict[str, Any]) -> None:
        with self._sending:
            self.socket.sendall(msgspec.json.encode(message) + b"\n")

    def received(self) -> Iterable[dict[str, Any]]:
        """The messages that have come; waits for a part of one at least. Raises ``OSError`` at the end."""
        data = self.socket.recv(1 << 16)
        if not data:
            raise ConnectionError("the connection is closed")
        self.heard_at = time.monotonic()
        *whole, self._rest = (self._rest + data).split(b"\n")
        return [msgspec.json.decode(line, type=dict[str, Any]) for line in whole]

    def next(self, deadline: float) -> dict[str, Any]:
        """The first message, while no other is on its way."""
        while True:
            self.socket.settimeout(max(0.01, deadline - time.monotonic()))
            if messages := list(self.received()):
                self.socket.settimeout(SILENCE_SECONDS)
                return messages[0]

    def close(self) -> None:
        self.socket.close()


def called(address: str, port: int, count: int, about: str, deadline: float, seconds: float) -> dict[int, HostLine]:
    """All other hosts, as they come to host 0. Those that came are told if others do not."""
    lines, refused = dict[int, HostLine](), ""
    try:
        with _listening(address, port) as door:
            while len(lines) < count - 1:
                refused = _let_in_next(door, lines, count, about, deadline) or refused
    except BaseException as fault:
        missing = ", ".join(str(host) for host in range(1, count) if host not in lines)
        lost = HostLostError(
            f"of {count} hosts {missing} did not come to {address}:{port} within {seconds:.0f} s: "
            f"start them with MARIN_COORDINATOR={address}:{port}, or see why they can't reach it{refused}"
        )
        for line in lines.values():
            with contextlib.suppress(OSError):
                line.send({"lost": str(lost if isinstance(fault, TimeoutError) else fault)})
            line.close()
        if isinstance(fault, TimeoutError):
            raise lost from None
        raise
    return lines


def _let_in_next(
    door: socket.socket, lines: dict[int, HostLine], count: int, about: str, deadline: float
) -> str | None:
    """Wait a moment for somebody at the ``door``, and put it into ``lines`` if it is one of the hosts.

    What to add to a message if it is one that was not let in. Raises ``TimeoutError`` after the ``deadline``.
    """
    door.settimeout(max(0.01, min(BEAT_SECONDS, deadline - time.monotonic())))
    try:
        connection, peer = door.accept()
    except TimeoutError:
        if time.monotonic() >= deadline:
            raise
        for here in lines.values():  # they are not to think that this one is gone
            with contextlib.suppress(OSError):
                here.send({})
        return None
    line = HostLine(connection)
    host, refusal = _checked(line, peer, lines, count, about, min(deadline, time.monotonic() + BEAT_SECONDS))
    with contextlib.suppress(OSError):
        line.send({"welcome": GREETING, "refused": refusal})
    if host is not None and refusal is None:
        lines[host] = line
        return None
    line.close()
    if host is None:
        return None
    _LOG.warning("host %s, from %s, was not let in: %s", host, peer[0], refusal)
    return f". Host {host} came and was not let in: {refusal}"


def _checked(
    line: HostLine, peer: Any, lines: dict[int, HostLine], count: int, about: str, deadline: float
) -> tuple[int | None, str | None]:
    """Which host has come, and why it is not let in, if it is not."""
    try:
        hello = line.next(deadline)
        host, hosts, theirs = hello["host"], hello["hosts"], hello["about"]
        if hello["greeting"] != GREETING or type(host) is not int:
            raise KeyError("greeting")
    except (OSError, msgspec.DecodeError, KeyError) as fault:
        _LOG.warning("what came from %s is no host (%s)", peer, type(fault).__name__)
        return None, "it is no host of this Marin"
    if hosts != count or not 0 < host < count:
        return host, f"it says that it is host {host} of {hosts}, but host 0 has MARIN_HOSTS={count}"
    if host in lines:
        return host, f"another process is host {host} already: each needs a MARIN_HOST of its own"
    if theirs != about:
        return host, f"it came for {theirs}, but host 0 for {about}"
    return host, None


def arrived(address: str, port: int, index: int, count: int, about: str, deadline: float, seconds: float) -> HostLine:
    """The connection to host 0, which may not be there yet."""
    problem = ""
    while time.monotonic() < deadline:
        try:
            connection = socket.create_connection((address, port), timeout=max(0.01, deadline - time.monotonic()))
            line = HostLine(connection)
            line.send({"greeting": GREETING, "host": index, "hosts": count, "about": about})
            welcome = line.next(deadline)
        except (OSError, msgspec.DecodeError) as fault:
            problem = str(fault)
            time.sleep(0.1)  # host 0 is on its way
            continue
        if welcome.get("welcome") == GREETING and welcome.get("refused") is None:
            return line
        line.close()
        raise ConfigurationError(
            f"host 0 at {address}:{port} does not let host {index} of {count} take part: "
            f"{welcome.get('refused', 'it is no host of this Marin')}"
        )
    raise HostLostError(
        f"host 0 of {count} can't be reached at {address}:{port} for {seconds:.0f} s ({problem}): start it there, or "
        "correct MARIN_COORDINATOR"
    )


def _listening(address: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    try:
        return socket.create_server(("", port), family=family, backlog=1024)
    except OSError as fault:
        raise ConfigurationError(
            f"host 0 can't listen at {address}:{port} ({fault}): choose another port in MARIN_COORDINATOR"
        ) from fault
