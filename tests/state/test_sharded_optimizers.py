"""Optimizers of parameters that lie on several ranks, one rank after the other in one process."""

import pytest
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard
from torch.testing._internal.distributed.fake_pg import FakeStore

from everstep.format.entries import Tensor
from everstep.state import Stage, match
from tests.state.uniting import cut, saved_by, together, written

SIZE = (5, 3)
"""Cut unevenly: of four ranks one has no row."""


def on_ranks(world, make):
    """What a function gives on each rank, with a mesh of all; the process group does nothing."""
    found = []
    for rank in range(world):
        dist.init_process_group("fake", rank=rank, world_size=world, store=FakeStore())
        try:
            found.append(make(rank, init_device_mesh("cpu", (world,))))
        finally:
            dist.destroy_process_group()
    return found


def spread(whole, rank, mesh):
    """A matrix's rows on the ranks of a mesh, a vector on all; the tensor itself without one."""
    if mesh is None:
        return whole.clone()
    if whole.ndim < 2:
        return DTensor.from_local(whole.clone(), mesh, [Replicate()], run_check=False)
    parts = whole.chunk(mesh.size())
    local = parts[rank] if rank < len(parts) else whole[:0]
    return DTensor.from_local(
        local.clone(), mesh, [Shard(0)], run_check=False, shape=whole.shape, stride=whole.stride()
    )


MAKERS = {
    "adamw": lambda p: torch.optim.AdamW(p, lr=0.1),
    "momentum": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9),
    "for each": lambda p: torch.optim.Adam(p, lr=0.1, amsgrad=True, foreach=True),
}


def world(name, rank=0, mesh=None, *, value=0.0, turned=False):
    """A module with a spread and a replicated parameter, and an optimizer that has not stepped."""
    net = torch.nn.Module()
    net.w = torch.nn.Parameter(spread(torch.full(SIZE, value), rank, mesh))
    net.b = torch.nn.Parameter(spread(torch.full((2,), value), rank, mesh))
    parameters = list(net.parameters())
    return {"m": net, "opt": MAKERS[name](parameters[::-1] if turned else parameters)}


def step(state, rank=0, mesh=None, seed=0):
    """One step on gradients that all ranks would compute."""
    generator = torch.Generator().manual_seed(seed)
    gradient = torch.randn(SIZE, generator=generator)
    state["m"].w.grad = spread(gradient, rank, mesh)
    state["m"].b.grad = spread(torch.randn(2, generator=generator), rank, mesh)
    state["opt"].step()
    return state


def local(tensor):
    """What is here of it."""
    return (tensor.to_local() if isinstance(tensor, DTensor) else tensor).detach()


def held(state, rank, parts):
    """All tensors of a state, as one rank of so many has them."""

    def rows(tensor):
        if isinstance(tensor, DTensor) or tensor.shape != SIZE:
            return local(tensor)
        chunks = tensor.detach().chunk(parts)
        return chunks[rank] if rank < len(chunks) else tensor.detach()[:0]

    found = {"w": rows(state["m"].w), "b": rows(state["m"].b)}
    for key in ("w", "b"):
        for name, value in state["opt"].state[getattr(state["m"], key)].items():
            found[key, name] = rows(value)
    return found


def same(one, other):
    """The same tensors bit for bit."""
    return one.keys() == other.keys() and all(torch.equal(one[key], other[key]) for key in one)


@pytest.mark.parametrize("used", [False, True], ids=["fresh", "used"])
@pytest.mark.parametrize("to", [1, 2, 4])
@pytest.mark.parametrize("name", MAKERS)
def test_the_state_of_two_ranks_goes_to_any_number(name, to, used):
    """Spread as the parameter is, though the optimizer has none yet; the next step gives the same bits."""
    whole = step(world(name, value=2.0))
    entries, kept = together(
        on_ranks(2, lambda r, mesh: written(step(world(name, r, mesh, value=2.0), r, mesh), r, 2))
    )
    layouts = {e.path: e.layout for e in entries if isinstance(e, Tensor) and e.shape == SIZE}
    assert all(layout is not None for layout in layouts.values())
    assert len(layouts) > 1
    step(whole, seed=7)

    def restore(rank, mesh):
        mesh = mesh if to > 1 else None
        live = world(name, rank, mesh, turned=True)
        if used:
            step(live, rank, mesh, seed=9)
        restoration = match(live, entries, rank=rank, world=to)
        read = {wanted.path: wanted.box for wanted in restoration.wanted if wanted.path in layouts}
        rows = local(live["m"].w).shape[0]
        assert all(box.sizes[0] == rows for box in read.values())
        assert len(read) == (len(layouts) if rows else 0)
        cut(restoration, kept)
        for value in live["opt"].state[live["m"].w].values():
            if value.shape == SIZE:
                assert isinstance(value, DTensor) == (to > 1)
        step(live, rank, mesh, seed=7)
        assert same(held(live, rank, to), held(whole, rank, to))
        return True

    assert all(on_ranks(to, restore))


def test_the_state_of_one_rank_is_spread():
    """The other way: only its own part is read by each."""
    whole = step(world("adamw", value=2.0))
    entries, kept = saved_by(whole)
    step(whole, seed=7)

    def restore(rank, mesh):
        live = world("adamw", rank, mesh)
        restoration = match(live, entries, rank=rank, world=2)
        moments = [w.box.sizes for w in restoration.wanted if w.path == "opt/state/w/exp_avg"]
        assert moments == [tuple(local(live["m"].w).shape)]
        cut(restoration, kept)
        step(live, rank, mesh, seed=7)
        return same(held(live, rank, 2), held(whole, rank, 2))

    assert all(on_ranks(2, restore))


def test_state_that_is_there_is_filled_in_its_memory():
    """A used optimizer's parts keep their addresses."""
    entries, kept = saved_by(step(world("adamw", value=2.0)))

    def restore(rank, mesh):
        live = step(world("adamw", rank, mesh), rank, mesh, seed=3)
        before = {key: value.data_ptr() for key, value in held(live, rank, 2).items()}
        cut(match(live, entries, rank=rank, world=2), kept)
        return before == {key: value.data_ptr() for key, value in held(live, rank, 2).items()}

    assert all(on_ranks(2, restore))


def test_a_stage_may_be_spread():
    """Over its own ranks; a plain whole optimizer takes it."""
    whole = step(world("adamw", value=2.0))

    def save(rank, mesh):
        state = step(world("adamw", rank, mesh, value=2.0), rank, mesh)
        return written({"m": Stage(state["m"], ranks=mesh), "opt": Stage(state["opt"], ranks=mesh)}, rank, 2)

    entries, kept = together(on_ranks(2, save))
    live = world("adamw", turned=True)
    cut(match(live, entries, rank=0, world=1), kept)
    assert same(held(live, 0, 1), held(whole, 0, 1))


def test_state_of_other_shapes_and_types_keeps_them():
    """Factored state stays plain, a step counter too though its parameter has no dimension; moments keep their type."""

    def odd(rank, mesh):
        net = torch.nn.Module()
        net.w = torch.nn.Parameter(spread(torch.ones(SIZE).bfloat16(), rank, mesh))
        net.s = torch.nn.Parameter(spread(torch.tensor(1.0), rank, mesh))
        return {"m": net, "opt": torch.optim.SGD(net.parameters(), lr=0.1)}

    def save(rank, mesh):
        state = odd(rank, mesh)
        rows, moments = torch.arange(5.0), torch.full(SIZE, 0.1)
        state["opt"].state[state["m"].w] = {"row": rows, "moment": spread(moments, rank, mesh)}
        state["opt"].state[state["m"].s] = {"step": torch.tensor(3.0)}
        return written(state, rank, 2)

    entries, kept = together(on_ranks(2, save))

    def restore(rank, mesh):
        live = odd(rank, mesh)
        cut(match(live, entries, rank=rank, world=2), kept)
        found = live["opt"].state[live["m"].w]
        assert type(found["row"]) is torch.Tensor
        assert found["row"].tolist() == [0, 1, 2, 3, 4]
        assert isinstance(found["moment"], DTensor)
        assert found["moment"].dtype == torch.float32
        assert torch.equal(local(found["moment"]), torch.full(local(live["m"].w).shape, 0.1))
        step_count = live["opt"].state[live["m"].s]["step"]
        return type(step_count) is torch.Tensor and step_count == 3

    assert all(on_ranks(2, restore))
