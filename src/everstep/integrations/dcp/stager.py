"""Staging for ``async_save`` in memory that is kept: allocated and touched once, then used again by every save."""

from __future__ import annotations

import copy
import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from everstep.integrations.dcp.sharded import parts_of, with_parts
from everstep.state.pinning import pin
from everstep.state.torch_arrays import Lanes, TorchBytes, raw
from everstep.transfer.memory import Arena
from everstep.transfer.workers import default_workers, run_all

__all__ = ["Stager"]

_ALIGN = 64
_SLICE = 8 * 2**20

Pair = tuple[torch.Tensor, torch.Tensor]


class Stager:
    """An ``AsyncStager``: copies the tensors of a state dict into kept memory; on return training may go on.

    Memory is free again when the tensors over it are gone: after the save, when nobody keeps its state dict (a
    planner that is used again keeps it until the next save). So a save never meets the memory of another one that
    is still under way; then a second stretch is taken. All that is no tensor is copied too. Call
    `close` after the last save.
    """

    _synchronize_after_execute = False

    def __init__(self) -> None:
        self._arenas: list[Arena] = []
        self._leases: dict[int, int] = {}  # by arena the number of its lease
        self._places: dict[int, tuple[int, int, Arena]] = {}  # by lease: where it begins and ends
        self._count = 0
        self._lock = threading.RLock()  # memory may come back inside `stage`, when the collector runs

    @property
    def should_synchronize_after_execute(self) -> bool:
        """Never: the copy is complete when `stage` returns."""
        return self._synchronize_after_execute

    @property
    def size(self) -> int:
        """Bytes of memory kept."""
        return sum(arena.size for arena in self._arenas)

    def stage(self, state_dict: dict[str, Any]) -> dict[str, Any]:
        """A copy of the state dict that training does not change any more."""
        found: dict[int, Sequence[torch.Tensor]] = {}
        _walk(state_dict, lambda tensor: found.setdefault(id(tensor), parts_of(tensor)), lambda _value: None)
        plain = [part for parts in found.values() for part in parts if _is_plain(part)]
        copies = dict(zip(map(id, plain), self._room(plain), strict=True))
        _copy([(part, copies[id(part)]) for part in plain])

        def staged(tensor: torch.Tensor) -> torch.Tensor:
            parts = found[id(tensor)]
            return with_parts(
                tensor, [copies[id(part)] if id(part) in copies else _cloned(part) for part in parts]
            )

        made: dict[str, Any] = _walk(state_dict, staged, copy.deepcopy)
        return made

    def stored(self, tensor: torch.Tensor) -> None:
        """All that was staged together with this tensor is stored: its memory is free, whoever still has tensors.

        Does nothing for a tensor that was not staged here.
        """
        with self._lock:
            at = tensor.data_ptr()
            found = [(n, arena) for n, (low, high, arena) in self._places.items() if low <= at < high]
        for number, arena in found:
            self._give_back(arena, number)

    def synchronize_staging(self) -> None:
        """Nothing to wait for."""

    def close(self) -> None:
        """Give the memory back as soon as no save uses it."""
        with self._lock:
            for arena in self._arenas:
                arena.close()
            self._arenas = []
            self._leases.clear()

    def _room(self, tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Tensors of the same shapes in kept memory."""
        sizes = [tensor.numel() * tensor.element_size() for tensor in tensors]
        memory = self._take(sum(-(-size // _ALIGN) * _ALIGN for size in sizes))
        made: list[torch.Tensor] = []
        at = 0
        for tensor, size in zip(tensors, sizes, strict=True):
            flat = memory[at : at + size].view(tensor.dtype) if size else torch.empty(0, dtype=tensor.dtype)
            made.append(flat.view(tensor.shape))
            at += -(-size // _ALIGN) * _ALIGN
        return made

    def _take(self, nbytes: int) -> torch.Tensor:
        if not nbytes:
            return torch.empty(0, dtype=torch.uint8)
        with self._lock:
            free = [arena for arena in self._arenas if id(arena) not in self._leases]
            arena = max(free, key=lambda arena: arena.size) if free else Arena(pin=pin)
            if not free:
                self._arenas.append(arena)
            self._count += 1
            number = self._leases[id(arena)] = self._count
            lease = memoryview(arena.take(nbytes))
        weakref.finalize(lease, self._give_back, arena, number).atexit = False
        staged = torch.frombuffer(lease, dtype=torch.uint8)
        self._places[number] = (staged.data_ptr(), staged.data_ptr() + nbytes, arena)
        return staged

    def _give_back(self, arena: Arena, number: int) -> None:
        with self._lock:
            self._places.pop(number, None)
            if self._leases.get(id(arena)) == number:
                del self._leases[id(arena)]
                arena.release()


def _walk(value: Any, tensor: Callable[[torch.Tensor], Any], other: Callable[[Any], Any]) -> Any:
    """The same nesting with each tensor and each other leaf replaced."""
    if isinstance(value, torch.Tensor):
        return tensor(value)
    if isinstance(value, Mapping):
        return {key: _walk(item, tensor, other) for key, item in value.items()}
    if isinstance(value, list | tuple):
        items = [_walk(item, tensor, other) for item in value]
        if type(value) in (list, tuple):
            return type(value)(items)
        if isinstance(value, tuple) and hasattr(value, "_fields"):
            return type(value)(*items)
    return other(value)


def _is_plain(tensor: torch.Tensor) -> bool:
    """Whether it has elements that can be copied as bits."""
    return not (
        tensor.layout is not torch.strided or tensor.is_quantized or tensor.is_meta or tensor.is_nested
    ) and type(tensor) in (torch.Tensor, torch.nn.Parameter)


def _cloned(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().clone().cpu() if not tensor.is_meta else tensor


def _copy(pairs: Sequence[Pair]) -> None:
    """Copy on several threads what lies contiguous on the CPU, the rest by torch; done on return."""
    import numpy as np  # noqa: PLC0415 - torch has loaded it by now

    slices: list[tuple[memoryview, memoryview]] = []
    lanes = Lanes()
    for source, target in pairs:
        view = TorchBytes(source).view()
        into = raw(target)
        if view is not None:
            slices += [
                (into[at : at + _SLICE], view[at : at + _SLICE]) for at in range(0, view.nbytes, _SLICE)
            ]
        else:
            if source.is_cuda:
                lanes.open(source.device)
            TorchBytes(source, lanes).copy_to(into)

    def copy_slice(pair: tuple[memoryview, memoryview]) -> None:
        np.copyto(np.frombuffer(pair[0], np.uint8), np.frombuffer(pair[1], np.uint8))

    if slices:
        run_all(slices, copy_slice, workers=min(default_workers(), len(slices)), name="everstep-stage")
    lanes.synchronize()
