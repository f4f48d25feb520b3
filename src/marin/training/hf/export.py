"""Write a model as Hugging Face's files, which transformers and the servers of models read."""

from __future__ import annotations

import json
import math
import os
import secrets
import shutil
from collections.abc import Callable, Generator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, Final, get_args

import numpy as np
from numpy.typing import NDArray
from safetensors import safe_open

from marin.errors import ConfigurationError, NonFiniteLossError
from marin.execution.progress import report
from marin.processing.durable import write_whole
from marin.processing.tokenize.manifest import TokenizerIdentity
from marin.storage.faults import translated_faults
from marin.training.arrays import named_leaves
from marin.training.checkpoint import PARAMS_FILE, TOKENIZER_FOLDER, Checkpoint
from marin.training.hf.array_files import DTYPES, INDEX_FILE, MODEL_FILE, Shape, write_tensors
from marin.training.hf.config_json import ExportDtype, written_config
from marin.training.hf.import_model import CONFIG_FILE, param_shapes
from marin.training.hf.names import Place, places_of
from marin.training.hf.tokenizer import special_ids, write_generation_config, write_tokenizer
from marin.training.models.implementation import Params
from marin.training.models.model import ModelConfig

SHARD_BYTES: Final = 5_000_000_000
"""Largest size of one file of tensors; a single larger tensor is one."""

_KINDS: Final[dict[ExportDtype, str]] = {"float32": "F32", "bfloat16": "BF16", "float16": "F16"}


@dataclass(frozen=True, kw_only=True)
class Exported:
    """What was written. ``has_tokenizer``: whether the tokenizer's files are among it."""

    folder: str
    files: tuple[str, ...]
    dtype: ExportDtype
    num_params: int
    bytes: int
    has_tokenizer: bool


def export_hf(
    params: Params,
    config: ModelConfig,
    folder: str,
    *,
    dtype: ExportDtype = "float32",
    tokenizer: TokenizerIdentity | None = None,
    tokenizer_dir: str | None = None,
    chat_template: str | None = None,
    max_shard_bytes: int = SHARD_BYTES,
) -> Exported:
    """Write the parameters of a model, layers as a list, to ``folder``, which is not there yet, or empty.

    ``tokenizer`` is the one that it was trained with, and ``tokenizer_dir`` a folder with its ``tokenizer.json``, such
    as that of the token cache; without them no tokenizer is written. Raises ``ConfigurationError`` for a model that has
    no form in Hugging Face's files, and for a folder that holds something.
    """
    leaves = named_leaves(params)
    shapes = {name: tuple(leaf.shape) for name, leaf in leaves.items()}
    return _export(
        config,
        shapes,
        lambda name: np.asarray(leaves[name]),
        folder,
        dtype=dtype,
        tokenizer=tokenizer,
        tokenizer_dir=tokenizer_dir,
        chat_template=chat_template,
        max_shard_bytes=max_shard_bytes,
    )


def export_checkpoint(
    checkpoint: Checkpoint,
    folder: str,
    *,
    dtype: ExportDtype = "float32",
    tokenizer_dir: str | None = None,
    chat_template: str | None = None,
    max_shard_bytes: int = SHARD_BYTES,
) -> Exported:
    """As ``export_hf``, of a checkpoint: its parameters are read one at a time.

    ``tokenizer_dir``: left out, the folder of the checkpoint that keeps its tokenizer, if there is one.
    """
    config = checkpoint.config
    written_config(config, vocab_size=checkpoint.vocab_size, dtype=dtype)  # told before a large file is opened
    if tokenizer_dir is None and os.path.isdir(kept := os.path.join(checkpoint.path, TOKENIZER_FOLDER)):
        tokenizer_dir = kept
    with ExitStack() as stack:
        file: Any = stack.enter_context(safe_open(os.path.join(checkpoint.path, PARAMS_FILE), framework="numpy"))
        return _export(
            config,
            param_shapes(config, checkpoint.vocab_size),
            file.get_tensor,
            folder,
            dtype=dtype,
            tokenizer=checkpoint.tokenizer,
            tokenizer_dir=tokenizer_dir,
            chat_template=chat_template,
            max_shard_bytes=max_shard_bytes,
        )


def _export(
    config: ModelConfig,
    shapes: Mapping[str, Shape],
    read: Callable[[str], NDArray[Any]],
    folder: str,
    *,
    dtype: ExportDtype,
    tokenizer: TokenizerIdentity | None,
    tokenizer_dir: str | None,
    chat_template: str | None,
    max_shard_bytes: int,
) -> Exported:
    if dtype not in get_args(ExportDtype):
        raise ConfigurationError(f"dtype={dtype!r} is none of {', '.join(get_args(ExportDtype))}")
    head = shapes.get("embed_tokens", shapes.get("wte", (0,)))
    entries = written_config(config, vocab_size=head[0], dtype=dtype)
    with _new_folder(folder) as scratch:
        has_tokenizer = tokenizer is not None and write_tokenizer(
            scratch,
            tokenizer,
            found_in=tokenizer_dir,
            max_seq_len=config.max_seq_len,
            chat_template=chat_template,
        )
        write_generation_config(scratch, tokenizer)
        _write_tensors(scratch, config, shapes, read, dtype=dtype, max_shard_bytes=max_shard_bytes)
        write_whole(os.path.join(scratch, CONFIG_FILE), _json({**entries, **special_ids(tokenizer)}))
        files = sorted(os.listdir(scratch))
        size = sum(os.path.getsize(os.path.join(scratch, name)) for name in files)
    return Exported(
        folder=folder,
        files=tuple(files),
        dtype=dtype,
        num_params=sum(math.prod(shape) for shape in shapes.values()),
        bytes=size,
        has_tokenizer=has_tokenizer,
    )


@contextmanager
def _new_folder(folder: str) -> Generator[str]:
    """Gives a scratch folder beside ``folder``, which becomes ``folder`` if the block ends well."""
    folder = os.path.realpath(folder)
    if os.path.lexists(folder) and not (os.path.isdir(folder) and not os.listdir(folder)):
        raise ConfigurationError(f"{folder} is there and not an empty folder: nothing is written; choose another one")
    # Not by the process alone: in containers one that was killed had the same number.
    scratch = f"{folder}.partial-{os.getpid()}-{secrets.token_hex(4)}"
    with translated_faults(folder, writing=True):
        os.makedirs(scratch)
        try:
            yield scratch
            os.replace(scratch, folder)
        except BaseException:
            shutil.rmtree(scratch, ignore_errors=True)
            raise


def _write_tensors(
    folder: str,
    config: ModelConfig,
    shapes: Mapping[str, Shape],
    read: Callable[[str], NDArray[Any]],
    *,
    dtype: ExportDtype,
    max_shard_bytes: int,
) -> None:
    places, theirs = places_of(config), dict[str, list[str]]()
    for name, place in places.items():  # parts of one tensor are in their order here, and not among the shapes
        theirs.setdefault(place.tensor, []).append(name)
    whole = {tensor: _joined_shape([shapes[n] for n in ours], places[ours[0]]) for tensor, ours in theirs.items()}
    kind, written = _KINDS[dtype], 0

    def tensor(name: str) -> NDArray[Any]:
        nonlocal written
        written += 1
        report(written, len(theirs), "tensors")
        parts = [read(ours) for ours in theirs[name]]
        array = np.concatenate(parts, axis=-1) if len(parts) > 1 else parts[0]
        return _cast(array.T if places[theirs[name][0]].turned else array, kind, name=name, dtype=dtype)

    shards = _shards(whole, kind, max_shard_bytes)
    index = dict[str, str]()
    for number, shard in enumerate(shards, start=1):
        file = MODEL_FILE if len(shards) == 1 else f"model-{number:05}-of-{len(shards):05}.safetensors"
        # Without the metadata transformers refuses the file.
        write_tensors(
            os.path.join(folder, file), {n: whole[n] for n in shard}, tensor, kind=kind, metadata={"format": "pt"}
        )
        index |= dict.fromkeys(shard, file)
    if len(shards) > 1:
        total = sum(math.prod(shape) for shape in whole.values())
        about = {"total_parameters": total, "total_size": total * DTYPES[kind].itemsize}
        write_whole(os.path.join(folder, INDEX_FILE), _json({"metadata": about, "weight_map": index}))


def _joined_shape(shapes: list[Shape], place: Place) -> Shape:
    joined = (*shapes[0][:-1], sum(shape[-1] for shape in shapes))
    return joined[::-1] if place.turned else joined


def _shards(shapes: Mapping[str, Shape], kind: str, max_bytes: int) -> list[list[str]]:
    shards, size = [list[str]()], 0
    for name, shape in shapes.items():
        needed = math.prod(shape) * DTYPES[kind].itemsize
        if shards[-1] and size + needed > max_bytes:
            shards.append([])
            size = 0
        shards[-1].append(name)
        size += needed
    return shards


def _cast(array: NDArray[Any], kind: str, *, name: str, dtype: ExportDtype) -> NDArray[Any]:
    with np.errstate(over="ignore"):
        cast = array.astype(DTYPES[kind])
    if not np.isfinite(cast).all():
        hint = " in float16, whose largest is 65,504: choose bfloat16 or float32" if dtype == "float16" else ""
        raise NonFiniteLossError(f"{name} would hold infinite or NaN numbers{hint}: nothing is written")
    return cast


def _json(value: Any) -> bytes:
    return (json.dumps(value, indent=2) + "\n").encode()
