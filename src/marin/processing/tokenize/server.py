"""Start the process that the workers of a tokenize step are forked from: early, as this imports nothing heavy."""

from __future__ import annotations

import multiprocessing
import multiprocessing.forkserver
import os

VARIABLE = "MARIN_PRELOADED_TOKENIZER"
"""Tells the server which tokenizer it is to load: ``0`` or ``1`` for ``parse_special``, then the file."""

_PRELOADED = ("marin.processing.tokenize.preloaded", "marin.processing.tokenize.crew")


def start_server(tokenizer_file: str | None, *, parse_special: bool) -> None:
    """Have the server load the fast engine of this file, ``None``: none. One that runs already is left as it is: what
    it has not loaded a worker loads itself."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(list(_PRELOADED))
    if tokenizer_file is not None:
        os.environ[VARIABLE] = f"{int(parse_special)}{os.path.abspath(tokenizer_file)}"
    try:
        multiprocessing.forkserver.ensure_running()  # it inherits the environment of this moment
    finally:
        os.environ.pop(VARIABLE, None)
