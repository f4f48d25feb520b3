import contextlib
import errno
import hashlib
import resource

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as numpy_strategies
from safetensors.numpy import load_file, save

from marin.errors import CheckpointError, NonFiniteLossError, StorageFullError
from marin.training import tensor_file
from marin.training.arrays import save_arrays
from marin.training.tensor_file import read_tensors, write_tensors


def bits(arrays):
    return {name: (array.dtype, array.shape, array.tobytes()) for name, array in arrays.items()}


TYPES = ["float64", "float32", "float16", "int64", "int32", "int16", "int8", "uint64", "uint32", "uint16", "uint8"]
FINITE = {"allow_nan": False, "allow_infinity": False}
ARRAYS = st.sampled_from([*TYPES, "bool"]).flatmap(
    lambda name: numpy_strategies.arrays(
        name,
        numpy_strategies.array_shapes(min_dims=0, min_side=0),
        elements=FINITE if name.startswith("float") else None,
    )
)


@settings(max_examples=30)
@given(arrays=st.dictionaries(st.text(min_size=1).filter(lambda name: name != "__metadata__"), ARRAYS))
def test_the_library_reads_what_was_written_and_the_digest_is_that_of_the_file(arrays, tmp_path_factory):
    path = tmp_path_factory.mktemp("files") / "some.safetensors"
    written = write_tensors(str(path), arrays)
    assert bits(load_file(path)) == bits(read_tensors(str(path))) == bits(arrays)
    assert written.bytes == path.stat().st_size
    assert written.sha256 == hashlib.sha256(path.read_bytes()).hexdigest()


def test_the_bytes_are_those_that_the_library_writes(tmp_path):
    arrays = {"b": np.arange(3, dtype=np.float32), "a": np.ones((2, 2), np.int64), "c": np.array(1, np.int8)}
    write_tensors(str(tmp_path / "some"), arrays, {"format": "pt"})
    assert (tmp_path / "some").read_bytes() == save(arrays, {"format": "pt"})


def test_numbers_of_half_the_size_come_back(tmp_path):
    arrays = {"w": np.arange(5).astype(ml_dtypes.bfloat16), "h": np.arange(5, dtype=np.float16)}
    write_tensors(str(tmp_path / "some"), arrays)
    assert bits(read_tensors(str(tmp_path / "some"))) == bits(arrays)


def test_an_array_that_is_not_contiguous_is_written_as_what_it_holds(tmp_path):
    write_tensors(str(tmp_path / "some"), {"w": np.arange(6).reshape(2, 3).T})
    assert read_tensors(str(tmp_path / "some"))["w"].tolist() == [[0, 3], [1, 4], [2, 5]]


def test_some_of_the_arrays_can_be_read_alone(tmp_path):
    write_tensors(str(tmp_path / "some"), {"params.w": np.ones(2), "optimizer.mu.w": np.zeros(2)})
    assert list(read_tensors(str(tmp_path / "some"), prefix="params.")) == ["w"]


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.float16, ml_dtypes.bfloat16, np.complex64])
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_number_that_is_not_finite_is_found_in_every_piece(bad, dtype, tmp_path, monkeypatch):
    monkeypatch.setattr(tensor_file, "PIECE_BYTES", 16)
    for position in range(9):
        array = np.zeros(9, dtype)
        array[position] = bad
        with pytest.raises(NonFiniteLossError, match=r"params.w holds infinite or NaN numbers"):
            write_tensors(str(tmp_path / "some"), {"params.w": array.reshape(3, 3)})


def test_a_type_that_the_format_lacks_is_told_by_the_name_of_the_array(tmp_path):
    for array in (np.zeros(2, np.complex128), np.zeros(2, ">f4"), np.array(["text"])):
        with pytest.raises(CheckpointError, match=r"params.w is of type .*, which a safetensors file can't hold"):
            write_tensors(str(tmp_path / "some"), {"params.w": array})


@contextlib.contextmanager
def files_end_at(size):
    """A limit of this process stands for the end of the disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_the_end_of_the_disk_is_told_by_the_number_of_the_operating_system(tmp_path):
    with files_end_at(100_000), pytest.raises(OSError) as caught:
        write_tensors(str(tmp_path / "some"), {"w": np.zeros(1_000_000)})
    assert caught.value.errno == errno.EFBIG
    with files_end_at(100_000), pytest.raises(StorageFullError, match=r"no room to write"):
        save_arrays(str(tmp_path / "other"), {"w": np.zeros(1_000_000)})
    assert not (tmp_path / "other").exists()
    assert not (tmp_path / "other.tmp").exists()
