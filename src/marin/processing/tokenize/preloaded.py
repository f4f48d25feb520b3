"""The engine that a process has loaded before it forks its workers.

The server that workers are forked from imports this module, and finds in its environment which tokenizer will be asked
for. Whoever asks for another one gets that, only later.
"""

from __future__ import annotations

import contextlib
import gc
import hashlib
import os
import threading

from marin.errors import ConfigurationError
from marin.processing.heap import keep_heap_small, trim_heap
from marin.processing.tokenize.engines import ByteEngine, Engine, EngineRefusal, FastEngine, ReferenceEngine
from marin.processing.tokenize.server import VARIABLE

_loaded: dict[tuple[bytes, bool], Engine] = {}
"""By the digest of the file, as another one may have taken its place."""
_loading: list[threading.Thread] = []


def load(tokenizer_file: str | None, *, is_fast: bool, parse_special: bool) -> Engine:
    """The engine; ``None`` for a file is bytes. Where the fast one refuses, it is the reference, which says why."""
    if tokenizer_file is None:
        return ByteEngine()
    with open(tokenizer_file, "rb") as stream:
        data = stream.read()
    if is_fast and (engine := _loaded.get(_key(data, parse_special))) is not None:
        return engine
    refusal = None
    if is_fast:
        try:
            engine = _loaded[_key(data, parse_special)] = FastEngine(data, parse_special=parse_special)
        except EngineRefusal as fault:
            refusal = str(fault)
        else:
            return engine
    reference = ReferenceEngine(data, label=tokenizer_file, parse_special=parse_special)
    reference.why = refusal
    return reference


def finish() -> None:
    """Wait for what is being loaded: to be called by the last module that the server imports, before it forks."""
    if not _loading:
        return
    for loading in _loading:
        loading.join()
    _loading.clear()
    # What is here now stays. Looking for cycles in it, a worker would write to all of it, and so get a copy of its own.
    gc.collect()
    gc.freeze()
    trim_heap()


def _preload(announced: str) -> None:
    parse_special, file = announced[0] == "1", announced[1:]
    with contextlib.suppress(OSError, ConfigurationError):  # whoever asks for it is told
        load(file, is_fast=True, parse_special=parse_special)


def _key(data: bytes, parse_special: bool) -> tuple[bytes, bool]:
    return hashlib.sha256(data).digest(), parse_special


keep_heap_small()
if announced := os.environ.get(VARIABLE):
    # Beside the imports that follow: the library lets go of the interpreter while it loads.
    _loading.append(threading.Thread(target=_preload, args=(announced,)))
    _loading[0].start()
