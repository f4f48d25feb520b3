"""What surrounds a call without being passed to it, such as the options of the command line around a script."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Generator
from contextvars import ContextVar, Token
from typing import Generic, TypeVar, final

T = TypeVar("T")


class Ambient(Generic[T]):
    """A context variable whose value threads see as well, if they are started where the main thread uses it.

    A new thread begins with an empty context. A script that runs its steps from threads would there be without the
    options that its user has given.

    >>> volume = Ambient[int]("volume")
    >>> with volume.use(11):
    ...     volume.get()
    11
    >>> volume.get() is None
    True
    """

    def __init__(self, name: str) -> None:
        self._here: ContextVar[T | None] = ContextVar(f"marin_{name}", default=None)
        self._of_main_thread: list[T] = []

    def get(self) -> T | None:
        """The value of the innermost ``use`` around the caller, else around the main thread; None outside of any."""
        here = self._here.get()
        if here is None and self._of_main_thread and not _on_main_thread():
            return self._of_main_thread[-1]
        return here

    @contextlib.contextmanager
    def use(self, value: T) -> Generator[None]:
        """Inside, ``get`` gives ``value``."""
        token = self._here.set(value)
        shared = _on_main_thread()
        if shared:
            self._of_main_thread.append(value)
        try:
            yield
        finally:
            if shared:
                self._of_main_thread.pop()
            self._here.reset(token)


@final
class setting(Generic[T]):  # reads as the statement that it is
    """Inside, ``variable`` has ``value``. Not a generator: it is entered for each step."""

    __slots__ = ("_token", "_value", "_variable")

    def __init__(self, variable: ContextVar[T], value: T) -> None:
        self._variable, self._value = variable, value

    def __enter__(self) -> None:
        self._token: Token[T] = self._variable.set(self._value)

    def __exit__(self, *_: object) -> None:
        self._variable.reset(self._token)


def _on_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()
