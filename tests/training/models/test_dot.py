import jax
import jax.numpy as jnp
import numpy as np
import pytest

from marin.training.models.dot import dot


def example():
    random = np.random.default_rng(0)
    shapes = ((2, 5, 8), (8, 6), (2, 5, 6))
    return tuple(jnp.asarray(random.normal(size=shape), jnp.float32) for shape in shapes)


@pytest.mark.parametrize(("precision", "tolerance"), [("float32", 1e-5), ("bfloat16", 0.1)])
def test_value_and_both_gradients_are_those_of_the_product(precision, tolerance):
    x, w, cotangent = example()
    value, pull = jax.vjp(lambda x, w: dot(x, w, jnp.dtype(precision)), x, w)
    dx, dw = pull(cotangent)
    np.testing.assert_allclose(value, np.einsum("bsi,io->bso", x, w), atol=tolerance)
    np.testing.assert_allclose(dx, np.einsum("bso,io->bsi", cotangent, w), atol=tolerance)
    np.testing.assert_allclose(dw, np.einsum("bsi,bso->io", x, cotangent), atol=tolerance)
    assert value.dtype == dx.dtype == dw.dtype == jnp.float32


def test_low_precision_sums_in_float32():
    # 4,096 ones: a sum kept in bfloat16 stops at 256
    ones = jnp.ones((1, 4096))
    assert dot(ones, ones.T, jnp.dtype("bfloat16"))[0, 0] == 4096
