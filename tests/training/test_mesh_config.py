import pytest
from hypothesis import given
from hypothesis import strategies as st

from marin.errors import ConfigurationError
from marin.training.mesh_config import MeshConfig


def test_what_is_left_of_the_devices_goes_to_one_axis():
    assert MeshConfig(fsdp=-1).sizes(8) == (1, 8, 1)
    assert MeshConfig(data=2, fsdp=-1, tensor=2).sizes(8) == (2, 2, 2)
    assert MeshConfig().sizes(1) == (1, 1, 1)


@given(st.integers(1, 6), st.integers(1, 6), st.integers(1, 6), st.sampled_from(["data", "fsdp", "tensor"]))
def test_the_sizes_multiply_to_the_devices(data, fsdp, tensor, free):
    given = {"data": data, "fsdp": fsdp, "tensor": tensor}
    assert MeshConfig(**{**given, free: -1}).sizes(data * fsdp * tensor) == (data, fsdp, tensor)


@pytest.mark.parametrize(
    ("text", "mesh"),
    [("fsdp=8", MeshConfig(fsdp=8)), (" data = 2 ,tensor=-1", MeshConfig(data=2, tensor=-1))],
)
def test_a_mesh_can_be_written_as_text(text, mesh):
    assert MeshConfig.parse(text) == mesh
    assert MeshConfig.parse(mesh) is mesh


NO_MESHES = ["", "fsdp", "fsdp=", "model=2", "fsdp=2,fsdp=2", "fsdp=2;data=2", 8, None, "fsdp=1.5"]


@pytest.mark.parametrize("text", NO_MESHES)
def test_what_is_no_mesh_is_told(text):
    with pytest.raises(ConfigurationError, match=r"is no mesh: write MeshConfig\(fsdp=8\) or text such as"):
        MeshConfig.parse(text)


def test_a_mesh_that_does_not_fit_is_told():
    with pytest.raises(ConfigurationError, match=r"data=1, fsdp=3, tensor=1 does not fit 8 devices: the product"):
        MeshConfig(fsdp=3).sizes(8)
    with pytest.raises(ConfigurationError, match=r"does not fit 1 device:"):
        MeshConfig(fsdp=-1, tensor=2).sizes(1)
    with pytest.raises(ConfigurationError, match=r"fsdp=0 is no number of parts"):
        MeshConfig(fsdp=0)
    with pytest.raises(ConfigurationError, match=r"-1 on two axes"):
        MeshConfig(fsdp=-1, tensor=-1)
