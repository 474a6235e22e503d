"""Asynchronous saves on two ranks: run by `Pool` on each rank."""

import torch
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.state_dict_saver import AsyncCheckpointerType
from torch.distributed.tensor import DTensor, Shard, distribute_tensor

from everstep.integrations.dcp import Stager, StorageReader, StorageWriter
from tests.integrations.dcp import jobs


def _state(value):
    mesh = jobs.mesh_of((4,))
    return {
        "w": distribute_tensor(torch.full((8, 64), float(value)), mesh, [Shard(0)]),
        "plain": torch.full((5,), float(value)),
        "epoch": value,
        "list": [value, {"deep": [value]}],
    }


def _loaded(store, run, step):
    state = _state(0)
    dcp.load(state, storage_reader=StorageReader(store, run, step))
    (value,) = set(state["w"].full_tensor().flatten().tolist()) | set(state["plain"].tolist())
    assert state["epoch"] == value
    assert state["list"] == [value, {"deep": [value]}]
    return value


def saves(store, run, kind, steps, own_stager):
    """Saves one after the other; training changes the state as soon as each call returns."""
    jobs.takes_part("rows")
    writer = StorageWriter(store, run)
    stager = Stager() if own_stager else None
    mode = AsyncCheckpointerType[kind]
    sizes, pending = [], []
    for step in steps:
        state = _state(step)
        writer.step = step
        done = dcp.async_save(state, storage_writer=writer, async_stager=stager, async_checkpointer_type=mode)
        state["w"].to_local().fill_(-1)
        state["plain"].fill_(-1)
        state["list"][1]["deep"].append("changed")
        pending.append(done)
        done.result()
        del done
        sizes.append((stager or writer._stager).size)
    seen = [_loaded(store, run, step) for step in steps]
    del pending
    (stager or writer).close()
    return [seen, max(sizes) // min(sizes)]


def failing(store, run):
    """A save in the background that cannot be made: the error is the future's, and the next save succeeds."""
    jobs.takes_part("rows")
    writer = StorageWriter(store, run, 1)
    state = _state(1)
    state["bad"] = object()
    told = None
    try:
        dcp.async_save(state, storage_writer=writer).result()
    except CheckpointException as error:
        told = len(error.failures)
    writer.step = 2
    dcp.async_save(_state(2), storage_writer=writer).result()
    return [told, _loaded(store, run, 2)]


def staged_dtensor():
    """A staged DTensor has the same mesh, placements and values, and memory of its own."""
    jobs.takes_part("rows")
    state = _state(3)
    staged = Stager().stage(state)
    state["w"].to_local().fill_(0)
    assert isinstance(staged["w"], DTensor)
    assert staged["w"].placements == state["w"].placements
    return staged["w"].full_tensor().mean().item()
