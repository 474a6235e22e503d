"""NumPy arrays in memory: any element type without objects, any strides, either byte order."""

from __future__ import annotations

import importlib
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from everstep.errors import RestoreError
from everstep.format.dtypes import ITEM_BYTES
from everstep.format.entries import Tensor
from everstep.state.memory import Bytes
from everstep.state.sharing import Extent, Span, View

__all__ = ["NumpyFresh", "NumpyHeld", "RawFresh", "dtype_text", "parse_dtype"]

_Array = np.ndarray[Any, Any]

_ML: Final = frozenset(
    {
        "bfloat16", "float8_e4m3fn", "float8_e4m3fnuz", "float8_e4m3b11fnuz", "float8_e4m3", "float8_e3m4",
        "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu", "float6_e2m3fn", "float6_e3m2fn", "float4_e2m1fn",
        "int4", "uint4", "int2", "uint2",
    }
)  # fmt: skip
"""Element types of the package ml_dtypes."""


def dtype_text(dtype: np.dtype[Any]) -> Any:
    """A description, JSON-able, from which `parse_dtype` makes the type again."""
    if dtype.subdtype is not None:
        item, shape = dtype.subdtype
        return {"of": dtype_text(item), "shape": list(shape)}
    if dtype.fields is None:
        return dtype.name if dtype.name in _ML else dtype.str
    fields = [dtype.fields[name] for name in dtype.names or ()]
    return {
        "names": list(dtype.names or ()),
        "formats": [dtype_text(field[0]) for field in fields],
        "offsets": [field[1] for field in fields],
        "titles": [str(field[2]) if len(field) > 2 else None for field in fields],
        "itemsize": dtype.itemsize,
        "aligned": dtype.isalignedstruct,
    }


def parse_dtype(text: Any) -> np.dtype[Any]:
    """The type that `dtype_text` described. Raises `RestoreError`."""
    try:
        made = _parse(text)
    except (ImportError, AttributeError) as error:
        raise RestoreError(
            f"the element type {text} needs the package ml_dtypes", hint="pip install ml_dtypes"
        ) from error
    except (TypeError, ValueError, KeyError, SyntaxError, RecursionError) as error:
        raise RestoreError(
            f"{text!r:.200} is no element type of NumPy", hint="where it is one of torch's, install torch"
        ) from error
    if made.hasobject:
        raise RestoreError(f"the element type {text!r:.200} holds Python objects")
    return made


def _parse(text: Any) -> np.dtype[Any]:
    if isinstance(text, str):
        known = getattr(importlib.import_module("ml_dtypes"), text) if text in _ML else text
        return np.dtype(known)
    if "of" in text:
        return np.dtype((_parse(text["of"]), tuple(int(n) for n in text["shape"])))
    layout = {name: text[name] for name in ("names", "offsets", "titles", "itemsize")}
    layout["formats"] = [_parse(item) for item in text["formats"]]
    return np.dtype(layout, align=bool(text["aligned"]))  # type: ignore[call-overload,no-any-return]


def _plain(dtype: np.dtype[Any]) -> bool:
    """Whether the format has a name for the element type."""
    return (
        dtype.fields is None
        and dtype.subdtype is None
        and _family(dtype) in ITEM_BYTES
        and (dtype.byteorder != ">" or dtype.itemsize <= 8 or dtype.name == "complex128")
    )


def _family(dtype: np.dtype[Any]) -> str:
    return dtype.type.__name__ if dtype.kind in "mM" else dtype.name


@dataclass(frozen=True, slots=True)
class NumpyBytes:
    """An array's elements in row-major order, little-endian."""

    array: _Array

    def view(self) -> memoryview | None:
        """The memory of an array that lies just so."""
        array = self.array
        if not array.flags.c_contiguous or not _little(array.dtype):
            return None
        return array.reshape(-1).view(np.uint8).data

    def copy_to(self, into: memoryview) -> None:
        """Copy the elements out."""
        source = _bits(self.array)
        np.copyto(np.frombuffer(into, dtype=source.dtype.newbyteorder("<")).reshape(source.shape), source)

    def copy_from(self, filled: memoryview) -> None:
        """Copy the elements in."""
        target = _bits(self.array)
        np.copyto(target, np.frombuffer(filled, dtype=target.dtype.newbyteorder("<")).reshape(target.shape))


def _little(dtype: np.dtype[Any]) -> bool:
    return dtype.byteorder != ">" or not _plain(dtype)


def _bits(array: _Array) -> _Array:
    """The same memory, as elements whose copies move bits unchanged; a big-endian plain type keeps its order.

    Strings and structures are bytes as they are. A complex element is two numbers.
    """
    dtype = array.dtype
    order = ">" if dtype.byteorder == ">" else "<"
    if _plain(dtype) and dtype.kind == "c" and dtype.itemsize <= 16:
        parts = np.dtype((f"{order}u{dtype.itemsize // 2}", (2,)))
        return array.view(np.dtype([("parts", parts)]))["parts"]
    if _plain(dtype) and dtype.itemsize <= 8:
        return array.view(f"{order}u{dtype.itemsize}")
    return array.view(np.dtype([("bits", f"V{dtype.itemsize}")]))["bits"]


@dataclass(frozen=True, slots=True)
class NumpyHeld:
    """A live array."""

    array: _Array

    @property
    def framework(self) -> str:
        """Whose it is."""
        return "numpy"

    @property
    def dtype(self) -> str:
        """Its element type; bytes for strings and structures."""
        return _family(self.array.dtype) if _plain(self.array.dtype) else "uint8"

    @property
    def shape(self) -> tuple[int, ...]:
        """Its shape; for strings and structures with the bytes of an element as the last dimension."""
        array = self.array
        return array.shape if _plain(array.dtype) else (*array.shape, array.dtype.itemsize)

    @property
    def extra(self) -> Mapping[str, Any]:
        """Its element type, where the name alone does not say it, and its byte order."""
        dtype = self.array.dtype
        found: dict[str, Any] = {}
        if dtype.kind in "mM":
            found["numpy"] = dtype_text(dtype.newbyteorder("<"))
        elif not _plain(dtype):
            found["numpy"] = dtype_text(dtype)
        if _plain(dtype) and dtype.byteorder == ">":
            found["byteorder"] = ">"
        return found

    @property
    def extent(self) -> Extent | None:
        """Where it lies, if its strides are whole elements and none runs backwards."""
        array = self.array
        item = array.dtype.itemsize
        if not item or any(stride < 0 or stride % item for stride in array.strides):
            return None
        shape: tuple[int, ...] = array.shape
        strides = tuple(stride // item for stride in array.strides)
        if not _plain(array.dtype):
            shape, strides, item = (*shape, item), (*array.strides, 1), 1
        return Extent(
            space=("numpy", array.dtype.str, repr(self.extra)),
            address=array.__array_interface__["data"][0],
            item=item,
            shape=shape,
            strides=strides,
        )

    def part(self, span: Span | None = None) -> Bytes:
        """Its elements, or a span of the memory around it."""
        if span is None:
            return NumpyBytes(self.array)
        dtype = self.array.dtype if _plain(self.array.dtype) else np.dtype(np.uint8)
        stretch = _Stretch(self.array, span, dtype.itemsize)
        return NumpyBytes(np.asarray(stretch).view(dtype))

    def make(self, view: View) -> _Array:
        """An array on the same memory."""
        return _strided(self.array.reshape(-1), self.array.dtype, view)


class _Stretch:
    """Memory around an array, which it keeps alive."""

    def __init__(self, array: _Array, span: Span, item: int) -> None:
        self._array = array
        self.__array_interface__ = {
            "data": (span.address, not array.flags.writeable),
            "shape": (span.elements,),
            "typestr": f"|V{item}",
            "version": 3,
        }


def _strided(flat: _Array, dtype: np.dtype[Any], view: View) -> _Array:
    """A view over contiguous memory; ``view`` was checked to stay inside it."""
    memory = flat.view(np.uint8)
    if _plain(dtype):
        strides = tuple(stride * dtype.itemsize for stride in view.strides)
        return np.ndarray(view.shape, dtype, memory, view.offset * dtype.itemsize, strides)
    if not dtype.itemsize:
        return np.zeros(view.shape[:-1], dtype)
    return np.ndarray(view.shape[:-1], dtype, memory, view.offset, view.strides[:-1])


class NumpyFresh:
    """New memory, and arrays over it."""

    def __init__(self, entry: Tensor) -> None:
        self._dtype = parse_dtype(entry.extra.get("numpy", entry.dtype))
        if entry.extra.get("byteorder") == ">":
            self._dtype = self._dtype.newbyteorder(">")
        self._bytes = np.empty(math.prod(entry.shape) * ITEM_BYTES[entry.dtype], np.uint8)

    def part(self) -> Bytes:
        """All of it."""
        big = _plain(self._dtype) and self._dtype.byteorder == ">"
        return NumpyBytes(self._bytes.view(self._dtype) if big else self._bytes)

    def make(self, view: View) -> _Array:
        """An array over it."""
        return _strided(self._bytes, self._dtype, view)


class RawFresh:
    """New memory of bare elements, to copy from."""

    def __init__(self, entry: Tensor) -> None:
        self._item = ITEM_BYTES[entry.dtype]
        self._bytes = np.empty(math.prod(entry.shape) * self._item, np.uint8)

    def part(self) -> Bytes:
        """All of it."""
        return NumpyBytes(self._bytes)

    def make(self, view: View) -> _Array:
        """The elements of a view, as bare bits."""
        strides = tuple(stride * self._item for stride in view.strides)
        return np.ndarray(view.shape, f"V{self._item}", self._bytes, view.offset * self._item, strides)
