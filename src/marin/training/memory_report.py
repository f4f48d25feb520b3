"""Why a training ran out of memory: which buffers are the largest, and which settings make them smaller."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Generator, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, cast

import jax

from marin.errors import OutOfMemoryError
from marin.execution.meter import size
from marin.training.arrays import dotted_name
from marin.training.checkpoint import Precision
from marin.training.models.layers import LAYERS

LARGEST_SHOWN = 6
"""Buffers that the message lists."""

_FLOAT32 = 4


@dataclass(frozen=True, kw_only=True)
class TrainingShape:
    """What decides how much memory a training needs, beside its parameters."""

    batch_size: int
    seq_len: int
    vocab_size: int
    precision: Precision
    grad_accumulation: int
    remat: bool
    batch_shards: int
    """Devices that a batch is split over: those of the mesh's data and fsdp axes together."""
    fsdp: int
    """Devices that the parameters are split over."""
    logits_rows: int
    """Tokens of one device whose logits exist at one time."""

    @property
    def rows(self) -> int:
        """Sequences that one device computes at one time."""
        return max(1, math.ceil(self.batch_size / (self.grad_accumulation * self.batch_shards)))


class Buffer(NamedTuple):
    """Something that takes memory of one device, the bytes exact or ``estimated``."""

    name: str
    bytes: int
    estimated: bool
    activation: bool = False
    """It grows with the batch."""


def is_out_of_memory(fault: BaseException) -> bool:
    """Whether ``fault`` says that memory ran out: of a device, as JAX tells it, or of the machine."""
    if isinstance(fault, MemoryError):
        return True
    return isinstance(fault, jax.errors.JaxRuntimeError) and "RESOURCE_EXHAUSTED" in str(fault)


@contextlib.contextmanager
def memory_explained(trees: Callable[[], tuple[Any, Any]], shape: TrainingShape, *, when: str) -> Generator[None]:
    """Raise what runs out of memory inside as ``OutOfMemoryError``.

    ``trees`` gives parameters and optimizer state, or their shapes; it is asked when that happens. ``when`` is for the
    message: ``while training``.
    """
    try:
        yield
    except (jax.errors.JaxRuntimeError, MemoryError) as fault:
        if not is_out_of_memory(fault):
            raise
        params, optimizer = trees()
        raise explain(fault, params=params, optimizer=optimizer, shape=shape, when=when) from fault


def explain(
    fault: BaseException, *, params: Any, optimizer: Any, shape: TrainingShape, when: str = "while training"
) -> OutOfMemoryError:
    """The error that names the largest buffers and what to change. The arrays may be donated ones, or only shapes."""
    buffers = sorted(buffers_of(params, optimizer, shape), key=lambda buffer: buffer.bytes, reverse=True)
    whose = "the machine has" if isinstance(fault, MemoryError) else "the device has"
    reason = (str(fault).strip() or type(fault).__name__).splitlines()[0][:300]
    lines = [
        f"{when}, more memory is needed than {whose} ({reason}). On each device, the largest first, * estimated:",
        *(f"  {size(each.bytes):>9}{'*' if each.estimated else ' '} {each.name}" for each in buffers[:LARGEST_SHOWN]),
        "What helps, and leaves the result the same to rounding:",
        *(f"  {knob}" for knob in _harmless_knobs(buffers, shape)),
        "What helps, and trains another model:",
        *(f"  {knob}" for knob in _other_knobs(shape)),
    ]
    return OutOfMemoryError("\n".join(lines))


def buffers_of(params: Any, optimizer: Any, shape: TrainingShape) -> Iterator[Buffer]:
    """What one device holds in a step. Activations are those of matrix products, so at least so many bytes."""
    state = _tree_bytes(params)
    yield Buffer(f"parameters; {_largest_array(params)}", state, estimated=False)
    yield Buffer(f"optimizer state; {_largest_array(optimizer)}", _tree_bytes(optimizer), estimated=False)
    copies = 1 if shape.grad_accumulation == 1 else 2
    summed = "" if copies == 1 else " and their sum over the parts of the batch"
    yield Buffer(f"gradients{summed}", copies * state, estimated=True)
    tokens = shape.rows * shape.seq_len
    if per_token := _activation_bytes(params, shape):
        which = "the inputs of all layers, and one layer's" if shape.remat else "all layers'"
        name = f"activations of {shape.rows:,} × {shape.seq_len:,} tokens: {which}"
        yield Buffer(name, tokens * per_token, estimated=True, activation=True)
    rows = min(tokens, shape.logits_rows)
    logits = rows * shape.vocab_size * _FLOAT32
    name = f"logits of {rows:,} tokens, float32[{rows},{shape.vocab_size}]"
    yield Buffer(name, logits, estimated=True, activation=True)


def _harmless_knobs(buffers: list[Buffer], shape: TrainingShape) -> Iterator[str]:
    activations = sum(each.bytes for each in buffers if each.activation)
    state = sum(each.bytes for each in buffers if not each.activation)
    less = list[str]()
    if shape.rows > 1:
        less.append(f"grad_accumulation={_next_accumulation(shape)}: fewer sequences at one time, so fewer activations")
    if not shape.remat:
        less.append("remat=True: activations are computed twice instead of kept, for about a third more time")
    split = (
        f"mesh= with more devices on its fsdp axis (now {shape.fsdp}): parameters, optimizer state and gradients are "
        "split over them, and so is the batch"
    )
    yield from (split, *less) if state > activations else (*less, split)


def _other_knobs(shape: TrainingShape) -> Iterator[str]:
    if shape.precision == "float32":
        yield 'precision="bfloat16": activations take half the memory'
    if shape.batch_size > 1:
        yield f"batch_size below {shape.batch_size:,}, or seq_len below {shape.seq_len:,}"
    else:
        yield f"seq_len below {shape.seq_len:,}"
    yield "a smaller model, or an optimizer with less state"


def _next_accumulation(shape: TrainingShape) -> int:
    """The next larger number of parts that a batch can be split into evenly, on every device."""
    per_device = max(1, shape.batch_size // shape.batch_shards)
    larger = (parts for parts in range(shape.grad_accumulation + 1, per_device + 1) if per_device % parts == 0)
    return next(larger, per_device)


def _tree_bytes(tree: Any) -> int:
    return sum(_array_bytes(leaf) for leaf in jax.tree.leaves(tree))


def _array_bytes(array: Any) -> int:
    """On one device: of a sharded array, one shard."""
    dims: tuple[int, ...] = tuple(getattr(array, "shape", ()))
    sharding = getattr(array, "sharding", None)
    if sharding is not None:
        dims = sharding.shard_shape(dims)
    dtype = getattr(array, "dtype", None)
    return math.prod(dims) * (dtype.itemsize if dtype is not None else _FLOAT32)


def _largest_array(tree: Any) -> str:
    leaves, _ = jax.tree_util.tree_flatten_with_path(tree)
    if not leaves:
        return "empty"
    sizes = [_array_bytes(array) for _, array in leaves]
    path, array = leaves[sizes.index(max(sizes))]
    dims = ",".join(map(str, getattr(array, "shape", ())))
    return f"the largest of {len(leaves)} is {dotted_name(path)}, {getattr(array, 'dtype', '?')}[{dims}]"


def _activation_bytes(params: Any, shape: TrainingShape) -> int:
    """For one token."""
    width = _FLOAT32 if shape.precision == "float32" else 2
    layers = _layer_widths(params)
    if not layers or not shape.remat:
        return width * sum(layers)
    embeddings = [leaf.shape for leaf in jax.tree.leaves(params) if shape.vocab_size in leaf.shape]
    hidden = min(min(dims) for dims in embeddings) if embeddings else min(layers)
    return len(layers) * _FLOAT32 * hidden + width * max(layers)


def _layer_widths(params: Any) -> list[int]:
    """Of each layer, how many values its matrices give for one token."""
    layers = cast("Mapping[str, Any]", params).get(LAYERS) if isinstance(params, Mapping) else None
    if isinstance(layers, Mapping):  # stacked: the first axis counts the layers
        leaves = jax.tree.leaves(layers)
        width = sum(leaf.shape[-1] for leaf in leaves if len(leaf.shape) >= 3)
        return [width] * (leaves[0].shape[0] if leaves else 0)
    return [
        sum(leaf.shape[-1] for leaf in jax.tree.leaves(layer) if len(leaf.shape) >= 2)
        for layer in cast("list[Any]", layers or [])
    ]
