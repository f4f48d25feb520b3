"""What a training says when memory runs out: the largest buffers, and the settings that help."""

import re
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import pytest

from marin.errors import OutOfMemoryError
from marin.training.memory_report import TrainingShape, buffers_of, explain, is_out_of_memory, memory_explained

ROOT = Path(__file__).parents[2]
HIDDEN, MLP, VOCAB, LAYERS = 8, 32, 100, 3


def shaped(*dims):
    return jax.ShapeDtypeStruct(dims, jnp.float32)


def params(*, stacked=False):
    layer = {"gate_proj": (HIDDEN, MLP), "down_proj": (MLP, HIDDEN), "norm": (HIDDEN,)}
    if stacked:
        layers = {name: shaped(LAYERS, *dims) for name, dims in layer.items()}
    else:
        layers = [{name: shaped(*dims) for name, dims in layer.items()} for _ in range(LAYERS)]
    return {"embed": shaped(VOCAB, HIDDEN), "layers": layers}


def shape(**changes):
    values = {
        "batch_size": 8,
        "seq_len": 16,
        "vocab_size": VOCAB,
        "precision": "float32",
        "grad_accumulation": 1,
        "remat": False,
        "batch_shards": 1,
        "fsdp": 1,
        "logits_rows": 64,
    }
    return TrainingShape(**(values | changes))


def sizes(tree=None, **changes):
    tree = tree or params()
    found = buffers_of(tree, {"mu": tree, "nu": tree}, shape(**changes))
    return {re.match(r"\w+", buffer.name)[0]: buffer.bytes for buffer in found}


NUMBERS = VOCAB * HIDDEN + LAYERS * (2 * HIDDEN * MLP + HIDDEN)
FAULT = jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: Out of memory allocating 3200000000 bytes.\nmore")


@pytest.mark.parametrize("stacked", [False, True])
def test_sizes_of_the_state_are_exact_and_those_of_a_step_follow_from_shapes(stacked):
    found = sizes(params(stacked=stacked))
    assert found["parameters"] == 4 * NUMBERS
    assert found["optimizer"] == 8 * NUMBERS
    assert found["gradients"] == 4 * NUMBERS
    assert found["activations"] == 4 * (8 * 16) * LAYERS * (MLP + HIDDEN)
    assert found["logits"] == 4 * 64 * VOCAB


def test_each_setting_makes_smaller_what_it_is_said_to_make_smaller():
    plain = sizes()
    assert sizes(grad_accumulation=4)["activations"] == plain["activations"] / 4
    assert sizes(batch_shards=2)["activations"] == plain["activations"] / 2
    assert sizes(precision="bfloat16")["activations"] == plain["activations"] / 2
    assert sizes(seq_len=8)["activations"] == plain["activations"] / 2
    assert sizes(remat=True)["activations"] == 4 * (8 * 16) * (LAYERS * HIDDEN + MLP + HIDDEN)
    assert sizes(grad_accumulation=4)["gradients"] == 2 * plain["gradients"]


def test_of_a_sharded_array_one_shard_counts(monkeypatch):
    class Halved:
        def shard_shape(self, dims):
            return (dims[0] // 2, *dims[1:])

    half = jax.tree.map(lambda leaf: leaf, params())
    whole = sizes(half)["parameters"]
    monkeypatch.setattr(jax.ShapeDtypeStruct, "sharding", Halved())
    assert sizes(half)["parameters"] == whole / 2


def test_the_message_names_fault_buffers_and_settings_the_most_useful_first():
    tree = params()
    error = explain(FAULT, params=tree, optimizer={"mu": tree, "nu": tree}, shape=shape(seq_len=2048))
    text = str(error)
    assert isinstance(error, OutOfMemoryError)
    assert "RESOURCE_EXHAUSTED: Out of memory allocating 3200000000 bytes." in text
    assert "more\n" not in text
    assert "parameters; the largest of 10 is embed, float32[100,8]" in text
    activations, optimizer = text.index("activations of 8 × 2,048 tokens"), text.index("optimizer state; ")
    assert activations < optimizer  # the largest first
    knobs = ["grad_accumulation=2", "remat=True", "fsdp", 'precision="bfloat16"', "batch_size below 8"]
    assert [text.index(knob) for knob in knobs] == sorted(text.index(knob) for knob in knobs)


def test_if_the_state_is_the_larger_part_splitting_it_is_named_first():
    tree = params()
    text = str(explain(FAULT, params=tree, optimizer=(tree, tree), shape=shape(seq_len=2)))
    assert text.index("fsdp") < text.index("grad_accumulation")


def test_a_setting_that_is_used_up_is_not_named():
    used_up = shape(precision="bfloat16", remat=True, grad_accumulation=8, batch_size=8)
    text = str(explain(FAULT, params=params(), optimizer={}, shape=used_up))
    assert "remat=" not in text
    assert "precision=" not in text
    assert "grad_accumulation=" not in text


@pytest.mark.parametrize(("batch", "shards", "now", "then"), [(8, 1, 1, 2), (9, 1, 1, 3), (8, 2, 2, 4), (12, 1, 4, 6)])
def test_the_number_of_parts_that_is_named_divides_the_batch_of_each_device(batch, shards, now, then):
    given = shape(batch_size=batch, batch_shards=shards, grad_accumulation=now)
    assert f"grad_accumulation={then}:" in str(explain(FAULT, params=params(), optimizer={}, shape=given))


@pytest.mark.parametrize(
    ("fault", "expected"),
    [
        (FAULT, True),
        (MemoryError("Unable to allocate 11.9 GiB"), True),
        (jax.errors.JaxRuntimeError("INTERNAL: no"), False),
        (RuntimeError("RESOURCE_EXHAUSTED"), False),
    ],
)
def test_other_faults_are_not_taken_for_it(fault, expected):
    assert is_out_of_memory(fault) is expected
    wanted = OutOfMemoryError if expected else type(fault)
    with pytest.raises(wanted) as raised, memory_explained(lambda: (params(), {}), shape(), when="while compiling"):
        raise fault
    if expected:
        assert raised.value.__cause__ is fault
        assert str(raised.value).startswith("while compiling, more memory is needed than")


PROGRAM = """
import resource
from pathlib import Path
import jax, jax.numpy as jnp
from marin.errors import OutOfMemoryError
from marin.training.memory_report import TrainingShape, memory_explained

@jax.jit
def update(params, x):
    return {"embed": params["embed"] + jnp.sum(jnp.sin(jnp.outer(x, x)) @ jnp.outer(x, x))}

params, x = {"embed": jnp.ones((100, 8))}, jnp.ones(20_000)
compiled = jax.jit(update, donate_argnums=0).lower(params, x).compile()
used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + (300 << 20),) * 2)
shape = TrainingShape(batch_size=8, seq_len=4, vocab_size=100, precision="float32", grad_accumulation=1, remat=False,
                      batch_shards=1, fsdp=1, logits_rows=8)
try:
    with memory_explained(lambda: (params, {}), shape, when="while training"):
        params = jax.block_until_ready(compiled(params, x))
except OutOfMemoryError as error:
    print(error)
"""


def test_a_computation_that_really_runs_out_of_memory_is_told_so():
    command = [sys.executable, "-c", PROGRAM]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=600)
    assert done.returncode == 0, done.stderr
    assert re.search(r"^while training, more memory is needed than the device has \(RESOURCE_EXHAUSTED: ", done.stdout)
    assert "parameters; the largest of 1 is embed, float32[100,8]" in done.stdout
