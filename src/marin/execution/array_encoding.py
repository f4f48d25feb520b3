"""Encodings of numpy's values. Numpy is never imported here: a config can hold its values only where it is loaded."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable
from typing import Any, TypeAlias

from marin.errors import FingerprintError

Encode: TypeAlias = Callable[[object], Any]


def is_numpy(value: object) -> bool:
    """Whether ``value`` is an array, a scalar, a dtype or a scalar type of numpy, or of a library that extends it."""
    numpy = sys.modules.get("numpy")
    # Asked for by name: numpy may be half-way through its own import.
    kinds = tuple(kind for name in ("generic", "ndarray", "dtype") if (kind := getattr(numpy, name, None)) is not None)
    return isinstance(value, kinds) or (
        isinstance(value, type) and value.__module__ == "numpy" and issubclass(value, kinds)
    )


def encode_numpy(value: Any, encode: Encode) -> dict[str, Any]:
    """The typed JSON of a value of numpy's; ``encode`` encodes what is inside.

    Arrays enter by dtype, shape and the hash of their bytes in C order, little-endian. Raises ``FingerprintError``.
    """
    numpy: Any = sys.modules["numpy"]
    if isinstance(value, type):
        return {"class": f"numpy:{_type_name(numpy, value)}"}
    if isinstance(value, numpy.dtype):
        return {"dtype": _dtype(value)}
    if type(value) is numpy.ndarray:
        return {"array": _dtype(value.dtype), "shape": list(value.shape), **_content(value)}
    if isinstance(value, numpy.ndarray):
        raise FingerprintError("an array of a subclass has no stable encoding: pass numpy.asarray(...) of it")
    return {"scalar": _dtype(value.dtype), **_scalar_content(numpy, value, encode)}


def _type_name(numpy: Any, cls: Any) -> str:
    """float32, bool: the dtype's name where there is one, because numpy 1 and 2 name some classes in two ways."""
    if issubclass(cls, numpy.number | numpy.bool_) and not cls.__subclasses__():
        return str(numpy.dtype(cls).name)
    return str(cls.__name__)


def _dtype(dtype: Any) -> Any:
    if dtype.hasobject:
        raise FingerprintError(f"dtype {dtype} holds Python objects, which have no stable bytes: pass a list")
    if dtype.fields:
        fields = [[name, _dtype(dtype.fields[name][0]), dtype.fields[name][1]] for name in dtype.names]
        return {"fields": fields, "itemsize": dtype.itemsize}
    if dtype.subdtype:
        base, shape = dtype.subdtype
        return {"base": _dtype(base), "shape": list(shape)}
    # The native order goes without saying, so that it is the same text on every machine.
    return str(dtype.name) if dtype.byteorder in "=|" else f"{dtype.byteorder}{dtype.name}"


def _content(array: Any) -> dict[str, Any]:
    if array.dtype.fields:
        # Field by field: the bytes between them are whatever lay in memory.
        return {"fields": {name: _content(array[name]) for name in array.dtype.names}}
    if array.dtype.kind == "g" or array.dtype.name in ("float128", "complex256", "float96", "complex192"):
        raise FingerprintError(f"{array.dtype.name} has other bytes on other machines: pass float64")
    big = array.dtype.byteorder == ">" or (array.dtype.byteorder == "=" and sys.byteorder == "big")
    little = array.byteswap() if big else array
    return {"sha256": hashlib.sha256(little.tobytes(order="C")).hexdigest()}


def _scalar_content(numpy: Any, scalar: Any, encode: Encode) -> dict[str, Any]:
    if scalar.dtype.fields:
        return _content(numpy.asarray(scalar))
    if scalar.dtype.kind in "mM":
        return {"value": encode(int(scalar.view("int64")))}
    plain = scalar.item()
    if isinstance(plain, numpy.generic):
        raise FingerprintError(f"{scalar.dtype.name} has other bytes on other machines: pass a float")
    return {"value": encode(plain)}
