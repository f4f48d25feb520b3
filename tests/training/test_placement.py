"""Eight devices against one, in a process of its own: XLA makes them of one CPU only before JAX begins."""

import json
import os
import subprocess
import sys

import pytest

PROGRAM = """
import json, sys
import jax, jax.numpy as jnp, numpy as np
from marin.training.arrays import named_arrays
from marin.training.mesh_config import MeshConfig
from marin.training.models.implementation import partition_of
from marin.training.models import llama
from marin.training.models.gpt2_config import Gpt2Config
from marin.training.models.llama_config import LlamaConfig
from marin.training.optimizers import AdamConfig
from marin.training.placement import make_placement
from marin.training.update import Rows, make_update, new_state
import dataclasses

MODEL = LlamaConfig(hidden_dim=64, intermediate_dim=128, num_layers=2, num_heads=4, num_kv_heads=2, max_seq_len=64)
GPT2 = Gpt2Config(hidden_dim=64, num_layers=2, num_heads=4, max_seq_len=64)
VOCAB = 256
OPTIMIZER = AdamConfig(lr=1e-3)
random = np.random.default_rng(0)
BATCHES = [random.integers(0, VOCAB, (16, 65)).astype(np.int32) for _ in range(5)]
MASK = random.random((16, 64)) < 0.7
FIRST = "embed_tokens", "wte", "layers.1.mlp.up_proj", "layers.1.mlp.c_fc"
SEGMENTS = np.cumsum(random.random((16, 64)) < 0.05, axis=1).astype(np.int32)

def run(devices, mesh, accumulation=1, stacked=False, remat=None, model=MODEL):
    placement = make_placement(jax.devices()[:devices], mesh, precision="float32", remat=remat)
    placement = dataclasses.replace(placement, stacked=stacked)
    state = new_state(model, OPTIMIZER, vocab_size=VOCAB, seed=0, placement=placement)
    start = {n: a.copy() for n, a in named_arrays(placement.canonical(state.params)).items()}
    update = make_update(model, OPTIMIZER, state=state, placement=placement, grad_accumulation=accumulation)
    layouts = [str(a.sharding) for a in jax.tree.leaves(state)]
    rows = placement.put_rows(Rows(BATCHES[0], MASK, SEGMENTS))
    memory = update.lower(state, rows, np.float32(1e-3)).compile().memory_analysis()
    losses = []
    for tokens in BATCHES:
        state, measured = update(state, placement.put_rows(Rows(tokens, MASK, SEGMENTS)), np.float32(1e-3))
        losses.append(float(measured.loss))
    kept = [str(a.sharding) for a in jax.tree.leaves(state)] == layouts
    biggest = max(a.addressable_shards[0].data.size / a.size for a in jax.tree.leaves(state.params) if a.ndim > 1)
    return {
        "losses": losses, "kept": kept, "arguments": memory.argument_size_in_bytes, "share": biggest,
        "start": {n: start[n].tobytes().hex() for n in FIRST if n in start},
        "end": {n: float(np.abs(a).sum()) for n, a in named_arrays(placement.canonical(state.params)).items()},
    }

found = {
    "one": run(1, None),
    "data": run(8, MeshConfig(data=8)),
    "fsdp": run(8, MeshConfig(fsdp=8)),
    "tensor": run(2, MeshConfig(tensor=2)),
    "all three": run(8, MeshConfig(data=2, fsdp=2, tensor=2)),
    "in pieces": run(1, None, accumulation=4),
    "fsdp in pieces": run(8, MeshConfig(fsdp=8), accumulation=2),
    "scanned": run(1, None, stacked=True, remat=True),
    "fsdp scanned": run(8, MeshConfig(fsdp=4, tensor=2), stacked=True, remat=True),
    "gpt-2": run(1, None, model=GPT2),
    "gpt-2, all three": run(8, MeshConfig(data=2, fsdp=2, tensor=2), model=GPT2),
}
json.dump(found, sys.stdout)
"""

LLAMA = ["data", "fsdp", "tensor", "all three", "in pieces", "fsdp in pieces", "scanned", "fsdp scanned"]
SPREAD = {**dict.fromkeys(LLAMA, "one"), "gpt-2, all three": "gpt-2"}
"""By what is cut over devices: the same on one."""


pytestmark = pytest.mark.timeout(1800)  # eleven compilations for eight devices


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    environment = {**os.environ, "XLA_FLAGS": "--xla_force_host_platform_device_count=8", "JAX_PLATFORMS": "cpu"}
    result = subprocess.run(
        [sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True, timeout=1700, check=False
    )
    assert result.returncode == 0, result.stderr[-3000:]
    return {**json.loads(result.stdout), "warnings": result.stderr}


@pytest.mark.parametrize("name", SPREAD)
def test_the_losses_are_those_of_one_device(found, name):
    # Of losses near 5.5 float32 tells two apart that differ by 5e-7.
    assert found[name]["losses"] == pytest.approx(found[SPREAD[name]]["losses"], rel=0, abs=1e-6)


@pytest.mark.parametrize("name", SPREAD)
def test_the_first_parameters_are_the_same_bits_on_any_mesh(found, name):
    assert found[name]["start"] == found[SPREAD[name]]["start"] != {}


@pytest.mark.parametrize("name", SPREAD)
def test_the_layout_of_the_state_stays_as_it_was(found, name):
    assert found[name]["kept"]


def test_each_device_holds_its_part_of_the_parameters(found):
    whole = found["one"]["arguments"]
    assert found["data"]["share"] == 1
    assert found["fsdp"]["share"] == 1 / 8
    assert found["tensor"]["share"] == 1 / 2
    assert found["all three"]["share"] == 1 / 4
    assert found["data"]["arguments"] == pytest.approx(whole, rel=0.05)  # the batch is cut, which is small
    assert found["fsdp"]["arguments"] == pytest.approx(whole / 8, rel=0.05)
    assert found["all three"]["arguments"] == pytest.approx(whole / 4, rel=0.05)


def test_the_compiler_never_brings_an_array_together_to_cut_it_anew(found):
    assert "Involuntary full rematerialization" not in found["warnings"]
