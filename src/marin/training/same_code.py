"""Whether the hosts of a training run the same program.

Each host compiles its own. Where they differ, as with an old checkout on one of them, the arrays would be put together
from two programs, and nothing else would tell.
"""

from __future__ import annotations

import glob
import hashlib
import importlib.metadata
import importlib.util
import os
import sys
from collections.abc import Iterable

import marin
from marin.training.models.model import ModelConfig

_DISTRIBUTIONS = ("jax", "jaxlib", "numpy", "optax")


def code_on_this_host(model: ModelConfig | None) -> dict[str, str]:
    """Digests and versions of what computes a training of ``model``, by what they are of."""
    package = os.path.dirname(marin.__file__)
    versions = {name: importlib.metadata.version(name) for name in _DISTRIBUTIONS}
    found = {"code of marin": _digest(glob.glob(f"{glob.escape(package)}/**/*.py", recursive=True), below=package)}
    return {**versions, **found, **(_code_of_model(model) if model is not None else {})}


def _code_of_model(model: ModelConfig) -> dict[str, str]:
    """That of the modules of a model that is not one of ours."""
    names = {type(model).__module__, model.implementation} - {"__main__"}
    files = dict[str, str]()
    for name in sorted(name for name in names if name.partition(".")[0] != marin.__name__):
        spec = importlib.util.find_spec(name) if name not in sys.modules else sys.modules[name].__spec__
        if spec is not None and spec.origin is not None and os.path.isfile(spec.origin):
            files[f"code of {name}"] = _digest([spec.origin], below=os.path.dirname(spec.origin))
    return files


def _digest(files: Iterable[str], *, below: str) -> str:
    digest = hashlib.sha256()
    for path in sorted(files):
        with open(path, "rb") as stream:
            content = hashlib.sha256(stream.read()).hexdigest()
        digest.update(f"{os.path.relpath(path, below)} {content}\n".encode())
    return digest.hexdigest()[:16]
