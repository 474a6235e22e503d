"""Worlds of ranks in one process: each rank's tensors lie on meshes of a process group that does nothing."""

import math
from contextlib import contextmanager

import numpy as np
import torch
import torch.distributed as dist
from torch.testing._internal.distributed.fake_pg import FakeStore

from everstep.format.box import Box
from everstep.format.dtypes import ITEM_BYTES
from everstep.format.entries import Tensor
from everstep.state import flatten, match
from tests.state.uniting import together


@contextmanager
def on_rank(rank, world):
    """Inside, torch takes this process for one rank of a world."""
    dist.init_process_group("fake", rank=rank, world_size=world, store=FakeStore())
    try:
        yield
    finally:
        dist.destroy_process_group()


class Store:
    """The bytes that ranks wrote, as whole arrays; each element comes from just one group of replicas."""

    def __init__(self):
        self.entries = []
        self._arrays = {}
        self._written = {}
        self._holders = {}

    def take(self, ranks):
        """Take what each rank wrote: entries, and pieces as (path, dtype, box, replicas, bytes)."""
        listed = []
        for rank, (entries, pieces) in enumerate(ranks):
            listed.append((entries, {(path, box): body for path, _, box, _, body in pieces}))
            for path, dtype, box, replicas, _ in pieces:
                due = tuple(range(len(ranks))) if replicas is None else replicas
                assert box.elements > 0 or box.sizes == () or 0 in box.sizes
                holders = self._holders.setdefault((path, dtype, box), (due, set()))
                assert holders[0] == due, path
                holders[1].add(rank)
        for key, (due, holders) in self._holders.items():
            assert set(due) == holders, (key, due, holders)
        self.entries, kept = together(listed)
        tensors = {entry.path: entry for entry in self.entries if isinstance(entry, Tensor)}
        for tensor in tensors.values():
            self._arrays[tensor.path] = np.zeros((*tensor.shape, ITEM_BYTES[tensor.dtype]), np.uint8)
            self._written[tensor.path] = np.zeros(tensor.shape, np.int64)
        for (path, box), body in kept.items():
            array = self._arrays[path]
            array[_slices(box)] = np.frombuffer(body, np.uint8).reshape(*box.sizes, array.shape[-1])
            self._written[path][_slices(box)] += 1
        for path, count in self._written.items():
            assert (count == 1).all(), f"{path}: {count}"

    def fill(self, restoration):
        """Bring what is wanted, by either way of a target, and finish; gives how many elements were read of each path."""
        read = {}
        for n, wanted in enumerate(restoration.wanted):
            body = np.ascontiguousarray(self._arrays[wanted.path][_slices(wanted.box)]).reshape(-1)
            assert body.nbytes == wanted.nbytes
            view = wanted.target.view() if n % 2 else None
            if view is None:
                wanted.target.copy_from(memoryview(bytearray(body.tobytes())))
            else:
                view[:] = body.data
            read[wanted.path] = read.get(wanted.path, 0) + wanted.box.elements
        restoration.finish()
        return read


def written(state, rank, world):
    """One rank's entries and pieces, with their bytes."""
    flat = flatten(state, rank=rank, world=world)
    pieces = []
    for piece in flat.pieces:
        into = bytearray(piece.nbytes)
        piece.source.copy_to(memoryview(into))
        view = piece.source.view()
        assert view is None or bytes(view) == into, piece.path
        pieces.append((piece.path, piece.dtype, piece.box, piece.replicas, bytes(into)))
    flat.synchronize()
    return flat.entries, pieces


def saved(world, make):
    """What all ranks of a world write of the states that ``make(rank)`` gives."""
    ranks = []
    for rank in range(world):
        with on_rank(rank, world):
            ranks.append(written(make(rank), rank, world))
    store = Store()
    store.take(ranks)
    return store


def restored(store, world, make, check, **how):
    """Restore into the states that ``make(rank)`` gives on each rank; ``check(state, rank, read)`` looks at each."""
    for rank in range(world):
        with on_rank(rank, world):
            state = make(rank)
            read = store.fill(match(state, store.entries, rank=rank, world=world, **how))
            check(state, rank, read)


def whole(shape, seed, dtype=torch.float32):
    """A tensor of any bits that are no NaN."""
    made = torch.arange(math.prod(shape), dtype=torch.int64) * 2654435761 + seed * 97
    return (made % 65521).to(dtype).reshape(shape)


def _slices(box: Box):
    return tuple(slice(o, o + n) for o, n in zip(box.offsets, box.sizes, strict=True))
