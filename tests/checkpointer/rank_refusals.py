"""What several ranks must refuse, each case followed by what is right; forked by `tests.zygote`."""

import os
from pathlib import Path

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor, init_device_mesh

import everstep as es
from tests.checkpointer.rank_models import start

__all__ = ["contradicted", "damaged", "late", "mismatched", "refused"]

ROWS = torch.arange(12.0).reshape(6, 2)


def right(number):
    """A state that can be saved."""
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    return {
        "rows": distribute_tensor(ROWS + number, mesh, [Shard(0)], src_data_rank=None),
        "bias": torch.full((3,), float(number)),
        "n": number,
        "stages": {},
    }


def same(state, number):
    """Whether it is the state of that number."""
    return (
        torch.equal(state["rows"].full_tensor(), ROWS + number)
        and torch.equal(state["bias"], torch.full((3,), float(number)))
        and state["n"] == number
    )


def shape(state, rank):
    state["bias"] = torch.zeros(3 + (rank == 1))


def dtype(state, rank):
    state["bias"] = torch.zeros(3, dtype=torch.float64 if rank == 2 else torch.float32)


def extra(state, rank):
    if rank == 2:
        state["more"] = torch.zeros(1)


def less(state, rank):
    if rank == 1:
        del state["bias"]


def value(state, rank):
    state["n"] = 5 + (rank == 1)


def order(state, rank):
    if rank == 1:
        state["rows"] = state.pop("rows")


def layout(state, rank):
    if rank == 1:
        state["rows"] = ROWS.clone()


def placement(state, rank):
    if rank == 1:
        mesh = state["rows"].device_mesh
        state["rows"] = distribute_tensor(ROWS, mesh, [Replicate()], src_data_rank=None)


def claims(state, rank):
    state["stages"] = es.Stage({"w": torch.full((4,), float(rank if rank < 2 else 1))})


def stage_shape(state, rank):
    state["stages"] = es.Stage({"w": torch.zeros(4 + (rank == 2))})


def stage_ranks(state, rank):
    state["stages"] = es.Stage({"w": torch.zeros(4)}, ranks=[0, 1, 2, 5] if rank == 1 else [0, 1, 2])


def mesh(state, rank):
    beyond = DeviceMesh("cpu", [0, 1, 2, 7], _init_backend=False)
    state["rows"] = DTensor.from_local(torch.zeros(2, 2), beyond, [Shard(0)], run_check=False)


def object_(state, rank):
    if rank == 1:
        state["n"] = object()


def first_object(state, rank):
    if rank == 0:
        state["n"] = object()


def partial(state, rank):
    from torch.distributed.tensor import Partial

    state["rows"] = DTensor.from_local(ROWS, state["rows"].device_mesh, [Partial()], run_check=False)


CASES = {
    one.__name__: one
    for one in (
        shape,
        dtype,
        extra,
        less,
        value,
        order,
        layout,
        placement,
        claims,
        stage_shape,
        stage_ranks,
        mesh,
        object_,
        first_object,
        partial,
    )
}


def refused(rendezvous, folder, *, tell):
    """Each case is saved, and then what is right; tells the errors, and what is committed."""
    start(rendezvous)
    rank, step = dist.get_rank(), 0
    with es.Checkpointer(folder, "r") as ckpt:
        for name, spoil in CASES.items():
            state = right(step)
            spoil(state, rank)
            try:
                ckpt.save(step + 1, state).wait()
            except es.EverstepError as error:
                tell([name, type(error).__name__, str(error)])
            else:
                tell([name, "was saved", ""])
            latest = ckpt.latest()
            assert (latest.step if latest else 0) == step, name
            step += 2
            ckpt.save(step, right(step)).wait()
            assert ckpt.latest().step == step, name
        for name, other in (
            ("again", step + (rank != 0)),
            ("before", step + (rank != 1)),
            ("later", step + 1 + (rank == 1)),
            ("after", step),
        ):
            try:
                ckpt.save(other, right(0)).wait()
            except es.EverstepError as error:
                tell([name, type(error).__name__, str(error)])
            assert ckpt.latest().step == step
        step += 2
        ckpt.save(step, right(step)).wait()
        state = right(0)
        assert ckpt.restore(state) == step
        assert same(state, step)


def wider(state, rank):
    if rank == 1:
        state["bias"] = torch.zeros(4)


def longer(state, rank):
    if rank == 2:
        state["more"] = torch.zeros(1)


def otherwise(state, rank):
    if rank == 0:
        state["bias"] = 5


def mismatched(rendezvous, folder, *, tell):
    """Restores into states that differ on one rank; nothing may change, and the right state comes back after."""
    start(rendezvous)
    rank = dist.get_rank()
    with es.Checkpointer(folder, "r") as ckpt:
        for step in (1, 2):
            ckpt.save(step, right(step)).wait()
    with es.Checkpointer(folder, "r") as ckpt:
        for spoil in (wider, longer, otherwise):
            state = right(9)
            spoil(state, rank)
            try:
                ckpt.restore(state)
            except es.EverstepError as error:
                tell([spoil.__name__, type(error).__name__, str(error)])
            assert torch.equal(state["rows"].full_tensor(), ROWS + 9)
            assert state["n"] == 9
        for name, asked in (("other step", 2 - (rank == 1)), ("no step", 1 if rank == 1 else None)):
            try:
                ckpt.restore(right(9), step=asked)
            except es.EverstepError as error:
                tell([name, type(error).__name__, str(error)])
        state = right(9)
        assert ckpt.restore(state, step=1) == 1
        assert same(state, 1)


def damaged(rendezvous, folder, *, tell):
    """The index of rank 1 of the newest checkpoint is damaged, then gone; tells what is restored, or the error."""
    start(rendezvous)
    with es.Checkpointer(folder, "r") as ckpt:
        for step in (1, 2):
            ckpt.save(step, right(step)).wait()
    (index,) = Path(folder).glob("runs/r/saves/s0000000000000002-*/rank-0000001.*")
    for harm in (lambda: index.write_bytes(index.read_bytes()[:-9] + b" " * 9), index.unlink):
        dist.barrier()
        if dist.get_rank() == 2:
            harm()
        dist.barrier()
        for how in ("previous", "fail"):
            with es.Checkpointer(folder, "r", on_corrupt=how) as ckpt:
                state = right(9)
                try:
                    step = ckpt.restore(state)
                except es.EverstepError as error:
                    tell([how, type(error).__name__, str(error)])
                    step = ckpt.restore(state, step=1)
                tell([how, step, same(state, step)])


def contradicted(rendezvous, folder, *, tell):
    """Variables that say otherwise than the process group."""
    start(rendezvous)
    for name, wrong in (("RANK", "2"), ("WORLD_SIZE", "5"), ("RANK", "x"), ("WORLD_SIZE", "1")):
        before = os.environ[name]
        os.environ[name] = wrong if name == "WORLD_SIZE" or wrong == "x" else str(1 - int(before))
        try:
            es.Checkpointer(folder, "r")
        except es.EverstepError as error:
            tell([name, type(error).__name__, str(error)])
        os.environ[name] = before
    with es.Checkpointer(folder, "r") as ckpt:
        ckpt.save(1, right(1)).wait()


def late(rendezvous, folder, *, tell):
    """Rank 2 does not save step 2; then it does not restore."""
    start(rendezvous)
    away = dist.get_rank() == 2
    with es.Checkpointer(folder, "r") as ckpt:
        ckpt.save(1, right(1)).wait()
        state = right(2)
        for what in (lambda: ckpt.save(2, state).wait(), lambda: ckpt.restore(state)):
            try:
                if not away:
                    what()
            except es.EverstepError as error:
                tell([type(error).__name__, str(error)])
            dist.barrier()
        tell(ckpt.latest().step)
