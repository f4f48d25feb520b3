"""The three ways to compute attention give the same, forward and backward, with segments and grouped heads."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from marin.training.models import attention as module
from marin.training.models.attention import accelerated, attention, kernel_of
from marin.training.models.compute import Compute

FLOAT32 = jnp.dtype("float32")
BFLOAT16 = jnp.dtype("bfloat16")


def operands(seq, kv_heads, *, dim=16, dtype=np.float32, seed=0):
    random = np.random.default_rng(seed)
    shapes = [(2, seq, 4, dim), (2, seq, kv_heads, dim), (2, seq, kv_heads, dim)]
    return [jnp.asarray(random.normal(size=shape), dtype) for shape in shapes]


def segments(seq):
    """Another number of documents in each row, of unequal lengths."""
    rows = [np.repeat([0, 1], [seq // 3, seq - seq // 3]), np.repeat([0, 1, 2], [5, seq // 2, seq - seq // 2 - 5])]
    return jnp.asarray(np.stack(rows), jnp.int32)


def one_by_one(q, k, v, segment_ids):
    """The formula, one position after the other, in float64."""
    q, k, v = (np.asarray(each, np.float64) for each in (q, k, v))
    ids = np.zeros(q.shape[:2], int) if segment_ids is None else np.asarray(segment_ids)
    mixed = np.zeros_like(q)
    for row, position, head in np.ndindex(*q.shape[:3]):
        shared = head // (q.shape[2] // k.shape[2])
        seen = [s for s in range(position + 1) if ids[row, s] == ids[row, position]]
        scores = np.array([q[row, position, head] @ k[row, s, shared] for s in seen]) / np.sqrt(q.shape[3])
        weights = np.exp(scores - scores.max())
        mixed[row, position, head] = weights @ v[row, seen, shared] / weights.sum()
    return mixed


@pytest.mark.parametrize("path", ["reference", "blocked", "accelerated"])
@pytest.mark.parametrize("kv_heads", [4, 2, 1])
@pytest.mark.parametrize("segmented", [False, True], ids=["one segment", "segments"])
def test_every_path_is_the_formula(path, kv_heads, segmented):
    q, k, v = operands(70, kv_heads)
    ids = segments(70) if segmented else None
    found = attention(q, k, v, segment_ids=ids, compute=Compute(dtype=FLOAT32, attention=path))
    assert found.dtype == jnp.float32
    np.testing.assert_allclose(found, one_by_one(q, k, v, ids), atol=2e-6)


@pytest.mark.parametrize("path", ["blocked", "accelerated"])
@pytest.mark.parametrize("segmented", [False, True], ids=["one segment", "segments"])
def test_gradients_are_those_of_the_reference(path, segmented):
    ids = segments(130) if segmented else None
    q, k, v = operands(130, 2)
    weights = jnp.asarray(np.random.default_rng(1).normal(size=q.shape), jnp.float32)

    def gradients(path):
        def loss(q, k, v):
            compute = Compute(dtype=FLOAT32, attention=path)
            return jnp.sum(weights * attention(q, k, v, segment_ids=ids, compute=compute))

        return jax.jit(jax.grad(loss, argnums=(0, 1, 2)))(q, k, v)

    for expected, found in zip(gradients("reference"), gradients(path), strict=True):
        assert np.abs(expected).max() > 0.5
        np.testing.assert_allclose(found, expected, atol=1e-5)


@pytest.mark.parametrize("path", ["blocked", "accelerated"])
def test_in_bfloat16_the_paths_are_as_close_as_its_digits(path):
    q, k, v = operands(70, 2)
    found = attention(q, k, v, segment_ids=segments(70), compute=Compute(dtype=BFLOAT16, attention=path))
    assert found.dtype == jnp.float32
    np.testing.assert_allclose(found, one_by_one(q, k, v, segments(70)), atol=0.03)


@pytest.mark.parametrize("segmented", [False, True], ids=["one segment", "segments"])
@pytest.mark.parametrize(("platform", "kernel"), [("cuda", "xla"), ("tpu", "xla"), ("cuda", "cudnn")])
def test_the_accelerated_path_is_lowered_for_what_is_not_here(platform, kernel, segmented, monkeypatch):
    """Forward and backward; nothing is run."""
    if kernel == "cudnn":
        monkeypatch.setattr("jax._src.cudnn.fused_attention_stablehlo.check_cudnn_version", lambda: 91_000)
    ids = segments(128) if segmented else None
    dtype = BFLOAT16

    def loss(q, k, v):
        return jnp.sum(accelerated(q, k, v, ids, dtype, kernel))

    traced = jax.jit(jax.value_and_grad(loss, argnums=(0, 1, 2))).trace(*operands(128, 2, dim=64))
    program = traced.lower(lowering_platforms=(platform,)).as_text()
    assert bool(re.search(r"__cudnn\$fmha\w*Backward", program)) == (kernel == "cudnn")
    assert ("dot_general" in program) == (kernel == "xla")


class Device:
    def __init__(self, platform, capability="9.0", version="cuda 12090"):
        self.platform, self.compute_capability, self.platform_version = platform, capability, version
        self.client = self


@pytest.mark.parametrize(
    ("device", "changes", "kernel"),
    [
        (Device("gpu"), {}, "cudnn"),
        (Device("gpu"), {"dtype": FLOAT32}, "xla"),
        (Device("gpu"), {"head_dim": 36}, "xla"),
        (Device("gpu"), {"head_dim": 256}, "cudnn"),
        (Device("gpu", "8.0"), {"head_dim": 256}, "xla"),
        (Device("gpu"), {"seq": 127, "masked": True}, "xla"),
        (Device("gpu"), {"seq": 127}, "cudnn"),
        (Device("gpu", version="rocm 60"), {}, "xla"),
        (Device("tpu"), {}, "xla"),
        (Device("cpu"), {}, "xla"),
    ],
)
def test_cudnn_is_used_where_it_takes_the_operands(device, changes, kernel, monkeypatch):
    given = {"dtype": BFLOAT16, "head_dim": 64, "seq": 128, "masked": False, **changes}
    monkeypatch.setattr(module.Compute, "device", device)
    assert kernel_of(Compute(dtype=given.pop("dtype"), attention="accelerated"), **given) == kernel
