import functools
import os
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from marin.errors import CheckpointError, NonFiniteLossError
from marin.training.arrays import host_copy, named_arrays, save_arrays, tree_of

ROOT = Path(__file__).parents[2]


@functools.partial(jax.jit, donate_argnums=0)
def consume(tree):
    return jax.tree.map(lambda array: array * 2 + 1, tree)


def test_a_host_copy_stays_as_it_is_while_the_training_consumes_the_arrays():
    state = consume({"w": jnp.arange(100_000, dtype=jnp.float32), "count": jnp.array(3)})
    copy = host_copy(state)
    wanted = {name: array.tobytes() for name, array in named_arrays(copy).items()}
    for _ in range(5):
        state = consume(state)
    jax.block_until_ready(state)
    assert {name: array.tobytes() for name, array in named_arrays(copy).items()} == wanted
    assert copy["w"][10] == 21


def test_the_copy_keeps_no_step_from_reusing_the_memory_of_the_state():
    state = consume({"w": jnp.arange(100_000, dtype=jnp.float32)})
    before = state["w"].unsafe_buffer_pointer()
    copy = host_copy(state)
    assert consume(state)["w"].unsafe_buffer_pointer() == before
    del copy


def test_arrays_of_the_host_are_copied_too():
    array = np.zeros(3)
    copy = host_copy([array, jnp.ones(2)])
    array[0] = 1
    assert copy[0].tolist() == [0, 0, 0]


def test_the_memory_of_an_earlier_copy_is_filled_anew():
    state = consume({"w": jnp.arange(1000, dtype=jnp.float32), "count": jnp.array(3), "on host": np.ones(2)})
    first = host_copy(state)
    memory = [array.ctypes.data for array in jax.tree.leaves(first)]
    second = host_copy(consume(state), reuse=first)
    assert [array.ctypes.data for array in jax.tree.leaves(second)] == memory
    assert (second["w"][10], second["count"], second["on host"][0]) == (43, 15, 7)


def test_memory_that_does_not_fit_is_left_alone():
    other = {"w": np.zeros(1, np.float32), "v": np.zeros(3, np.float64)}
    copy = host_copy({"w": jnp.arange(3.0), "v": jnp.ones(3)}, reuse=other)
    assert (copy["w"].tolist(), copy["v"].dtype) == ([0, 1, 2], np.float32)
    assert not other["w"].any()
    assert not other["v"].any()


SHARDED = """
import jax, jax.numpy as jnp, numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
from marin.training.arrays import host_copy

mesh = Mesh(np.array(jax.devices()).reshape(4, 2), ("data", "model"))
for dtype in ("float32", "bfloat16"):
    whole = jnp.arange(8 * 6 * 4).reshape(8, 6, 4).astype(dtype)
    for spec in (P(), P("data"), P(None, "model"), P("model", None, "data"), P(("data", "model"))):
        copy = host_copy({"w": jax.device_put(whole, NamedSharding(mesh, spec))})["w"]
        assert copy.tobytes() == np.asarray(whole).tobytes(), spec
        assert copy.flags.owndata, spec
        again = host_copy({"w": jax.device_put(whole + 1, NamedSharding(mesh, spec))}, reuse={"w": copy})["w"]
        assert again is copy, spec
        assert again.tobytes() == np.asarray(whole + 1).tobytes(), spec
print(len(jax.devices()), "devices")
"""


def test_arrays_that_lie_on_several_devices_are_put_together():
    environment = {**os.environ, "XLA_FLAGS": "--xla_force_host_platform_device_count=8", "JAX_PLATFORMS": "cpu"}
    done = subprocess.run(
        [sys.executable, "-c", SHARDED], cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    assert done.stdout == "8 devices\n", done.stderr


def test_an_array_of_another_model_is_named():
    arrays = {"params.w": np.zeros((2, 3), np.float32)}
    like = {"params": {"w": np.zeros((2, 4), np.float32)}}
    with pytest.raises(
        CheckpointError, match=r"here: params.w is float32\[2, 3\], but the model wants float32\[2, 4\]"
    ):
        tree_of(arrays, like, origin="here")
    with pytest.raises(CheckpointError, match=r"here lacks the array params.v"):
        tree_of(arrays, {"params": {"v": np.zeros(1)}}, origin="here")


@pytest.mark.parametrize(("umask", "mode"), [(0o022, 0o644), (0o007, 0o660)])
def test_the_umask_says_who_may_read_a_file_of_arrays(umask, mode, tmp_path):
    before = os.umask(umask)
    try:
        save_arrays(str(tmp_path / "params.safetensors"), {"a": np.zeros(2)})
    finally:
        os.umask(before)
    assert (tmp_path / "params.safetensors").stat().st_mode & 0o777 == mode


def test_numbers_that_are_not_finite_leave_the_file_as_it_was(tmp_path):
    path = tmp_path / "params.safetensors"
    save_arrays(str(path), {"a": np.zeros(2)})
    before = path.read_bytes()
    with pytest.raises(NonFiniteLossError, match=r"params.safetensors is not written: a holds infinite or NaN"):
        save_arrays(str(path), {"a": np.array([1, np.nan])})
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == ["params.safetensors"]
