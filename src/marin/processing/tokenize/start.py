"""The function of a tokenize step: has the tokenizer loaded beside the imports, then does what ``build`` says.

A vocabulary of a hundred thousand ids takes a second to load, as long as everything else at the start of a step. This
module therefore imports next to nothing.
"""

from __future__ import annotations

import glob
import importlib
import os
from collections.abc import Iterable, Iterator

from marin.executors.machine import count_cpus
from marin.processing.sources import FileSource, Source, is_url, split_suffixes
from marin.processing.tokenize.server import start_server
from marin.processing.tokenize.tokenize import TokenizeConfig, TokenizedCache

CREW_BYTES = 16_000_000
"""Less input is not worth starting worker processes."""


def tokenize(config: TokenizeConfig) -> TokenizedCache:
    """Make the token cache that ``config`` asks for. Raises as ``marin.processing.tokenize.build.tokenize``."""
    if will_want_crew(config):
        start_server(config.tokenizer.location, parse_special=config.parse_special)
    # By name: a type checker need not know that it is heavy.
    return importlib.import_module("marin.processing.tokenize.build").tokenize(config)


def will_want_crew(config: TokenizeConfig) -> bool:
    """Whether worker processes with a fast engine will most likely be wanted. What a step does is decided later, when
    its input has been looked at: a wrong guess costs time, and nothing else."""
    return (
        config.tokenizer.kind == "file"
        and os.path.isfile(config.tokenizer.location)
        and config.format is None
        and config.sample_count is None
        and (config.workers or count_cpus()) > 1
        and _is_large(config.source)
    )


def _is_large(source: Source) -> bool:
    if not isinstance(source, FileSource) or any(is_url(path) for path in source.paths):
        return False
    size = 0
    for count, path in enumerate(_files(source.paths)):
        size += os.path.getsize(path)
        if size >= CREW_BYTES and (count or split_suffixes(path)[1] is None):  # one compressed file is for one worker
            return True
    return False


def _files(paths: Iterable[str]) -> Iterator[str]:
    for path in paths:
        whole = os.path.expanduser(path)
        for found in [whole] if os.path.exists(whole) else glob.iglob(whole, recursive=True):
            if os.path.isfile(found):
                yield found
            for folder, _, names in os.walk(found):
                yield from filter(os.path.isfile, (os.path.join(folder, name) for name in names))
