"""Saves and loads that fail on one rank at one place: run by `Pool` on each rank."""

from contextlib import suppress
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.default_planner import DefaultSavePlanner
from torch.distributed.tensor import Shard, distribute_tensor

from everstep.errors import AccessDenied, EverstepError
from everstep.integrations.dcp import StorageReader, StorageWriter
from everstep.store.local import LocalStore
from tests.integrations.dcp import jobs

STEPS = (
    "set_up_storage_writer",
    "prepare_local_plan",
    "prepare_global_plan",
    "write_data",
    "finish",
    "resolve_data",
    "finish_plan",
    "packs",
    "index",
)
READ_STEPS = (
    "read_metadata",
    "set_up_storage_reader",
    "prepare_local_plan",
    "prepare_global_plan",
    "read_data",
)


class Planned(Exception):
    """The fault that the test asked for."""


class Failing:
    """Its method ``step`` fails where ``armed``; after it did its work when ``late``."""

    armed = ""
    late = False

    def __getattribute__(self, name):
        found = super().__getattribute__(name)
        if name.startswith("_") or name != super().__getattribute__("armed"):
            return found

        def fail(*args, **kwargs):
            if super(Failing, self).__getattribute__("late"):
                found(*args, **kwargs)
            raise Planned(f"{name} fails")

        return fail


class FailingWriter(Failing, StorageWriter):
    """A writer that fails."""


class FailingReader(Failing, StorageReader):
    """A reader that fails."""


class FailingPlanner(Failing, DefaultSavePlanner):
    """A planner that fails."""


class Refusing(LocalStore):
    """A disk that takes no object whose key holds a word."""

    word = ""

    def create(self, key, body):
        if self.word and self.word in key:
            raise AccessDenied(f"no {key}")
        super().create(key, body)


def _newest(store, run):
    reader = StorageReader(store, run)
    state = jobs.state_of("rows", filled=False)
    dcp.load(state, storage_reader=reader)
    assert jobs.same(state)
    return reader.checkpoint.step


def faulty_save(folder, run, step, rank, late):
    """A good save, one that fails on one rank, and a good one; the steps that were newest after each."""
    mine = dist.get_rank() == rank
    place = Refusing(Path(folder))
    writer = FailingWriter(place, run)
    state = jobs.state_of("rows", filled=True)
    jobs.takes_part("rows")
    seen, told = [], None
    for number in (1, 2, 3):
        bad = number == 2 and mine
        writer.step = number
        writer.late = late
        state["turn"] = distribute_tensor(torch.full((8, 4), float(number)), jobs.mesh_of((4,)), [Shard(0)])
        planner = FailingPlanner()
        planner.late = late
        writer.armed = step if bad and step not in ("resolve_data", "finish_plan") else ""
        planner.armed = step if bad and step in ("resolve_data", "finish_plan") else ""
        place.word = {"packs": "packs/", "index": "/rank-"}.get(step, "") if bad else ""
        try:
            dcp.save(state, storage_writer=writer, planner=planner)
        except CheckpointException as error:
            told = [number, sorted(error.failures)]
        dist.barrier()
        seen.append(_newest(folder, run))
    writer.close()
    return [told, seen]


def faulty_load(store, run, step, rank):
    """A load that fails on one rank fails on all of them, naming it; the next one succeeds."""
    dcp.save(jobs.state_of("rows", filled=True), storage_writer=StorageWriter(store, run, 1))
    reader = FailingReader(store, run)
    reader.armed = step if dist.get_rank() == rank else ""
    told = None
    try:
        dcp.load(jobs.state_of("grid", filled=False), storage_reader=reader)
    except CheckpointException as error:
        told = sorted(error.failures)
    return [told, _newest(store, run)]


def without_coordinator(store, run):
    """All ranks have written, and the coordinator never finishes: another launch goes on."""
    writer = FailingWriter(store, run, 1)
    state = jobs.state_of("rows", filled=True)
    dcp.save(state, storage_writer=writer)
    writer.step, writer.armed = 2, "finish"
    with suppress(CheckpointException):
        dcp.save(state, storage_writer=writer)
    dist.barrier()
    first = _newest(store, run)
    dist.barrier()
    again = StorageWriter(store, run, 2)
    dcp.save(state, storage_writer=again)
    writer.armed, writer.step = "", 3
    fenced = None
    try:
        dcp.save(state, storage_writer=writer)
    except CheckpointException as error:
        fenced = type(error.failures[0][0]).__name__
    dist.barrier()
    return [first, _newest(store, run), fenced]


def second_is_coordinator(store, run):
    """Saved with another coordinator than rank 0, through the interface that takes one."""
    from torch.distributed.checkpoint.state_dict_loader import _load_state_dict
    from torch.distributed.checkpoint.state_dict_saver import _save_state_dict

    state = jobs.state_of("grid", filled=True)
    _save_state_dict(state, StorageWriter(store, run, 1), coordinator_rank=2)
    found = jobs.state_of("rows", filled=False)
    _load_state_dict(found, StorageReader(store, run), coordinator_rank=1)
    return jobs.same(found)


def different_ranks(store, run):
    """Ranks with names of their own, as the stages of a pipeline have, and one value that differs."""
    rank = dist.get_rank()
    state = {f"stage{rank}": {"w": torch.full((3,), float(rank))}, "same": torch.ones(2), "epoch": 4}
    dcp.save(state, storage_writer=StorageWriter(store, run, 1))
    found = {f"stage{rank}": {"w": torch.zeros(3)}, "same": torch.zeros(2), "epoch": None}
    dcp.load(found, storage_reader=StorageReader(store, run))
    assert torch.equal(found[f"stage{rank}"]["w"], torch.full((3,), float(rank)))
    return found["epoch"]


def cached_plans(store, run):
    """Three saves with a planner that caches plans, so that later ones hand over what the first did."""
    writer = StorageWriter(store, run)
    for step in (1, 2, 3):
        writer.step = step
        state = jobs.state_of("rows", filled=True)
        state["plain"] = torch.full((8, 12), float(step))
        dcp.save(state, storage_writer=writer, planner=DefaultSavePlanner(enable_plan_caching=True))
    other = StorageWriter(store, run, 4)
    state["plain"] = torch.full((8, 12), 4.0)
    dcp.save(state, storage_writer=other, planner=DefaultSavePlanner(enable_plan_caching=True))
    seen = []
    for step in (1, 2, 3, 4):
        state = jobs.state_of("rows", filled=False)
        dcp.load(state, storage_reader=StorageReader(store, run, step))
        seen.append(state["plain"].mean().item())
    DefaultSavePlanner._cached_save_plan.clear()
    DefaultSavePlanner._cached_final_save_plan.clear()
    DefaultSavePlanner._cached_all_plans.clear()
    DefaultSavePlanner._cached_global_plan.clear()
    DefaultSavePlanner._cached_metadata.clear()
    return seen


def no_collectives(store, run):
    """Saves without collectives: shards and replicas of DTensors, and what each rank has its own of."""
    jobs.takes_part("rows")
    rank = dist.get_rank()
    writer = StorageWriter(store, run, commit_timeout_s=60)
    seen = []
    for step in (1, 2):
        writer.step = step
        state = {
            **{
                layout: jobs.state_of(layout, filled=True)["model"]
                for layout in ("rows", "hybrid", "everywhere")
            },
            "loader": {"at": 10 * rank + step, "seen": torch.full((rank + 1,), float(step))},
            "list": [{"lr": 0.5}],
        }
        dcp.save(state, storage_writer=writer, use_collectives=False)
        found = {
            **{
                layout: jobs.state_of(layout, filled=False)["model"]
                for layout in ("rows", "hybrid", "everywhere")
            },
            "loader": {"at": None, "seen": torch.zeros(rank + 1)},
            "list": [{"lr": None}],
        }
        dcp.load(found, storage_reader=StorageReader(store, run))
        for layout in ("rows", "hybrid", "everywhere"):
            for name, tensor in found[layout].items():
                assert torch.equal(tensor.full_tensor(), jobs.full(name)), (layout, name)
        assert torch.equal(found["loader"]["seen"], torch.full((rank + 1,), float(step)))
        assert found["list"] == [{"lr": 0.5}]
        seen.append(found["loader"]["at"])
    state["bad"] = object() if rank == 1 else 1
    writer.step = 3
    told = None
    try:
        dcp.save(state, storage_writer=writer, use_collectives=False)
    except EverstepError as error:
        told = type(error).__name__
    dist.barrier()
    writer.close()
    return [seen, told]


def alone(store, run):
    """no_dist on each rank, each with a run of its own."""
    rank = dist.get_rank()
    state = {"w": torch.full((3,), float(rank))}
    dcp.save(state, storage_writer=StorageWriter(store, f"{run}-{rank}", 1), no_dist=True)
    found = {"w": torch.zeros(3)}
    dcp.load(found, storage_reader=StorageReader(store, f"{run}-{rank}"), no_dist=True)
    return found["w"][0].item()
