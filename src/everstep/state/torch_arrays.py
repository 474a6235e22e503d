"""torch tensors as arrays in memory: their bits, where they lie, and new ones."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Final

import torch

from everstep.errors import RestoreError
from everstep.format.dtypes import ITEM_BYTES
from everstep.format.entries import Tensor
from everstep.state.memory import Bytes
from everstep.state.sharing import Extent, Span, View

__all__ = ["Lanes", "TorchFresh", "TorchHeld", "dtype_name", "dtype_of", "quantizer"]

_BITS: Final = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64, 16: torch.complex128}
"""Types by size whose copies move bits unchanged."""

_QUANTIZED: Final = (torch.qint8, torch.quint8, torch.qint32)


@cache
def dtype_name(dtype: torch.dtype) -> str:
    """The name of an element type, as the format knows it, or as torch does."""
    return str(dtype).removeprefix("torch.")


def dtype_of(name: str) -> torch.dtype:
    """The element type of this name. Raises `RestoreError`."""
    dtype = getattr(torch, name, None) if name in ITEM_BYTES else None
    if not isinstance(dtype, torch.dtype):
        raise RestoreError(
            f"this torch has no element type {name}", hint="a newer torch may have it", dtype=name
        )
    return dtype


def bits(tensor: torch.Tensor) -> torch.Tensor:
    """The same memory, elements as plain bits; the conjugate and negative marks must be resolved before."""
    kind = _BITS[tensor.element_size()]
    if tensor.dtype in _QUANTIZED:
        raw = torch.empty(0, dtype=kind, device=tensor.device)
        return raw.set_(
            tensor.untyped_storage(), tensor.storage_offset(), tuple(tensor.shape), tuple(tensor.stride())
        )
    return tensor.view(kind)


def raw(tensor: torch.Tensor) -> memoryview:
    """The bytes of a contiguous tensor in this machine's memory."""
    flat = torch.empty(0, dtype=torch.uint8)
    size = tensor.element_size()
    with torch.no_grad():
        flat.set_(tensor.untyped_storage(), tensor.storage_offset() * size, (tensor.numel() * size,), (1,))
    return flat.numpy().data


@dataclass(slots=True)
class Lanes:
    """One side stream for each CUDA device: copies run on it after the work that was queued when it was opened."""

    _streams: dict[torch.device, torch.cuda.Stream] = field(default_factory=dict)

    def open(self, device: torch.device) -> None:
        """Have a stream for the device, behind the caller's current one."""
        if device not in self._streams:
            stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
            stream.wait_stream(torch.cuda.current_stream(device))
            self._streams[device] = stream

    def copy(self, tensor: torch.Tensor, into: torch.Tensor) -> None:
        """Begin to copy from the device; it does not wait where ``into`` is pinned."""
        with torch.cuda.stream(self._streams[tensor.device]):
            into.copy_(tensor, non_blocking=True)

    def synchronize(self) -> None:
        """Wait for all copies."""
        for stream in self._streams.values():
            stream.synchronize()


@dataclass(frozen=True, slots=True)
class TorchBytes:
    """A tensor's elements in row-major order."""

    tensor: torch.Tensor
    lanes: Lanes | None = None

    def view(self) -> memoryview | None:
        """The memory of a contiguous tensor on the CPU."""
        tensor = self.tensor
        if tensor.device.type != "cpu" or not tensor.is_contiguous() or tensor.is_conj() or tensor.is_neg():
            return None
        return raw(tensor)

    def copy_to(self, into: memoryview) -> None:
        """Copy the elements out; on CUDA on a side stream."""
        if not into.nbytes:
            return
        with torch.no_grad():
            source = bits(self.tensor.resolve_conj().resolve_neg())
            target = torch.frombuffer(into, dtype=source.dtype).view(source.shape)
            if self.lanes is not None and source.is_cuda:
                self.lanes.copy(source, target)
            else:
                target.copy_(source)

    def copy_from(self, filled: memoryview) -> None:
        """Copy the elements in; on a device it is done on return."""
        if not filled.nbytes:
            return
        tensor = self.tensor
        with torch.no_grad(), torch.inference_mode(tensor.is_inference()):
            if tensor.is_conj() or tensor.is_neg():
                tensor.copy_(torch.frombuffer(filled, dtype=tensor.dtype).view(tensor.shape))
            else:
                target = bits(tensor)
                target.copy_(torch.frombuffer(filled, dtype=target.dtype).view(tensor.shape))


@dataclass(frozen=True, slots=True)
class TorchHeld:
    """A live, strided tensor without subclass behaviour."""

    tensor: torch.Tensor
    lanes: Lanes | None = None
    marks: Mapping[str, Any] = field(default_factory=dict)

    @property
    def framework(self) -> str:
        """Whose it is."""
        return "torch"

    @property
    def dtype(self) -> str:
        """Its element type."""
        return dtype_name(self.tensor.dtype)

    @property
    def shape(self) -> tuple[int, ...]:
        """Its shape."""
        return tuple(self.tensor.shape)

    @property
    def extra(self) -> Mapping[str, Any]:
        """Its quantizer, and whether it is a parameter."""
        found = dict(self.marks)
        if self.tensor.is_quantized:
            found["quantizer"] = quantizer(self.tensor)
        return found

    @property
    def extent(self) -> Extent | None:
        """Where it lies; a conjugate view has other values than the memory it is in."""
        tensor = self.tensor
        if tensor.is_conj() or tensor.is_neg():
            return None
        space = ["torch", str(tensor.device), self.dtype]
        if tensor.is_quantized:
            space.append(repr(quantizer(tensor)))
        return Extent(
            space=tuple(space),
            address=tensor.data_ptr(),
            item=tensor.element_size(),
            shape=tuple(tensor.shape),
            strides=tuple(tensor.stride()),
        )

    def part(self, span: Span | None = None) -> Bytes:
        """Its elements, or a span of its storage."""
        tensor = self.tensor
        if span is None:
            return TorchBytes(tensor, self.lanes)
        offset = tensor.storage_offset() + (span.address - tensor.data_ptr()) // tensor.element_size()
        return TorchBytes(bits(tensor).as_strided((span.elements,), (1,), offset), self.lanes)

    def make(self, view: View) -> torch.Tensor:
        """A tensor on the same memory."""
        offset = self.tensor.storage_offset() + view.offset
        return self.tensor.as_strided(view.shape, view.strides, offset)


class TorchFresh:
    """New memory on the CPU, and tensors over it."""

    def __init__(self, entry: Tensor) -> None:
        self._extra = entry.extra
        self._dtype = dtype_of(entry.dtype)
        self._path = entry.path
        count = math.prod(entry.shape)
        item = ITEM_BYTES[entry.dtype]
        self._bits = torch.empty(count, dtype=_BITS[item])

    def part(self) -> Bytes:
        """All of it."""
        return TorchBytes(self._bits)

    def make(self, view: View) -> torch.Tensor:
        """A tensor over it, quantized or a parameter where the saved one was."""
        if self._dtype in _QUANTIZED:
            made = _quantized(self._extra.get("quantizer"), view, self._dtype, self._path)
            storage = self._bits.untyped_storage()
            made.set_(storage, view.offset, view.shape, view.strides)
        else:
            made = self._bits.as_strided(view.shape, view.strides, view.offset).view(self._dtype)
        if self._extra.get("parameter"):
            return torch.nn.Parameter(made, requires_grad=bool(self._extra.get("requires_grad")))
        return made.requires_grad_() if self._extra.get("requires_grad") else made


def quantizer(tensor: torch.Tensor) -> dict[str, Any]:
    """What turns a quantized tensor's integers into numbers."""
    if tensor.qscheme() == torch.per_tensor_affine:
        return {"scheme": "tensor", "scale": tensor.q_scale(), "zero": tensor.q_zero_point()}
    scales, zeros = tensor.q_per_channel_scales(), tensor.q_per_channel_zero_points()
    return {
        "scheme": "channel" if tensor.qscheme() == torch.per_channel_affine else "channel_float",
        "scale": scales.tolist(),
        "zero": zeros.tolist(),
        "axis": tensor.q_per_channel_axis(),
    }


def _quantized(stored: Any, view: View, dtype: torch.dtype, path: str) -> torch.Tensor:
    shape = view.shape
    try:
        if stored["scheme"] == "tensor":
            return torch._empty_affine_quantized(  # noqa: SLF001 - torch has no public way to make one from its bits
                (0,), scale=stored["scale"], zero_point=stored["zero"], dtype=dtype
            )
        whole = stored["scheme"] == "channel"
        return torch._empty_per_channel_affine_quantized(  # noqa: SLF001 - as above
            shape,
            scales=torch.tensor(stored["scale"], dtype=torch.float64 if whole else torch.float32),
            zero_points=torch.tensor(stored["zero"], dtype=torch.int64 if whole else torch.float32),
            axis=stored["axis"],
            dtype=dtype,
        )
    except (TypeError, KeyError, RuntimeError) as error:
        raise RestoreError(f"the quantizer of {path} cannot be read: {error}", path=path) from error
