"""Loads that are counted: run by `Pool` on each rank."""

from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.tensor import Shard, distribute_tensor

from everstep.integrations.dcp import StorageReader, StorageWriter
from everstep.store.count import Count
from everstep.store.local import LocalStore
from tests.integrations.dcp import jobs

ROWS, COLUMNS = 512, 512


def _state(dim, value=None):
    jobs.takes_part("rows")
    whole = torch.arange(ROWS * COLUMNS, dtype=torch.float32).reshape(ROWS, COLUMNS)
    mesh = jobs.mesh_of((4,))
    return {
        f"w{n}": distribute_tensor(whole + n if value is None else whole * 0, mesh, [Shard(dim)])
        for n in range(6)
    }


def resharded(store, run):
    """Saved by rows on four ranks, loaded by rows on the first two: bytes fetched and needed, and requests."""
    dcp.save(_state(0), storage_writer=StorageWriter(store, run, 1))
    count = Count(LocalStore(Path(store)))
    fetched = torch.zeros(2)
    group, mesh = jobs.group_of(2), jobs.mesh_of((2,))
    if dist.get_rank() < 2:
        wanted = {
            name: distribute_tensor(torch.zeros(ROWS, COLUMNS), mesh, [Shard(0)], src_data_rank=None)
            for name in _names()
        }
        dcp.load(wanted, storage_reader=StorageReader(count, run), process_group=group)
        for n, tensor in enumerate(wanted.values()):
            half = ROWS // 2
            whole = torch.arange(ROWS * COLUMNS, dtype=torch.float32).reshape(ROWS, COLUMNS) + n
            assert torch.equal(tensor.to_local(), whole[dist.get_rank() * half :][:half])
        fetched = torch.tensor([float(count.bytes_out), float(sum(count.calls.values()))])
    dist.all_reduce(fetched)
    return [fetched[0].item(), 6 * ROWS * COLUMNS * 4, fetched[1].item()]


def _names():
    return [f"w{n}" for n in range(6)]


def same_layout(store, run):
    """How many indexes a rank reads when nothing moved."""
    dcp.save(_state(0), storage_writer=StorageWriter(store, run, 1))
    count = Count(LocalStore(Path(store)))
    dcp.load(_state(0, value=0), storage_reader=StorageReader(count, run))
    return sum("/rank-" in key for verb, key in count.log if verb == "get")


def saved(store, run):
    """The calls of the second save of a writer."""
    count = Count(LocalStore(Path(store)))
    writer = StorageWriter(count, run, 1)
    dcp.save(_state(0), storage_writer=writer)
    count.clear()
    writer.step = 2
    state = {name: tensor + 1 for name, tensor in _state(0).items()}
    dcp.save(state, storage_writer=writer)
    return dict(count.calls)


def replicas(store, run):
    """How many indexes are read for each of some plain tensors of different sizes."""
    state = {f"t{n}": torch.full((100 - 7 * n % 50,), float(n)) for n in range(8)}
    dcp.save(state, storage_writer=StorageWriter(store, run, 1))
    seen = []
    for name, value in state.items():
        count = Count(LocalStore(Path(store)))
        found = {name: torch.zeros_like(value)}
        dcp.load(found, storage_reader=StorageReader(count, run))
        assert torch.equal(found[name], value)
        seen.append(sum("/rank-" in key for verb, key in count.log if verb == "get"))
    return seen
