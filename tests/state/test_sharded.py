"""DTensors: saved by the ranks of one mesh, restored on those of another."""

import pytest
import torch
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.placement_types import _StridedShard

from everstep.errors import RestoreMismatch, UnsupportedLeaf, UsageError
from everstep.format.entries import Alias, Layout, Tensor
from everstep.state import PerRank, Stage, flatten, match
from everstep.state.meshes import _by_coordinates, _root, slices
from everstep.state.sharded import fresh_like
from tests.state.spreading import on_rank, restored, saved, whole


def spread(tensor, mesh, placements):
    """A tensor whose value all ranks know, cut by torch for this rank."""
    return distribute_tensor(tensor.clone(), mesh, placements, src_data_rank=None)


def local(tensor):
    """What is here of it."""
    return (tensor.to_local() if isinstance(tensor, DTensor) else tensor).detach()


def meshes_of(world):
    """Shapes of meshes of all ranks of a world, or of the first ones of them."""
    shapes = [(n,) for n in range(1, world + 1)]
    shapes += [(a, b) for a in range(1, world + 1) for b in range(1, world + 1) if a * b <= world]
    return shapes + [(2, 2, 2), (2, 1, 3), (1, 3, 2)] * (world >= 6) + [(2, 2, 2)] * (world >= 8)


@st.composite
def lays(draw, world, ndim):
    """How a tensor lies on the ranks of a world: a mesh, its ranks, and placements."""
    shape = draw(st.sampled_from([s for s in meshes_of(world) if torch.Size(s).numel() <= world]))
    ranks = draw(st.permutations(range(world)))[: torch.Size(shape).numel()]
    if draw(st.booleans()):
        ranks = sorted(ranks)
    dims = st.integers(0, ndim - 1)
    placement = st.one_of(
        st.just(Replicate()),
        dims.map(Shard),
        st.tuples(dims, st.integers(1, 4)).map(lambda p: _StridedShard(p[0], split_factor=p[1])),
    )
    return shape, ranks, [draw(placement) for _ in shape]


@st.composite
def cases(draw):
    """Two worlds, and tensors with how each lies on the ranks of either."""
    one, other = draw(st.integers(1, 6)), draw(st.integers(1, 6))
    tensors = []
    for _ in range(draw(st.integers(8, 16))):
        shape = tuple(draw(st.lists(st.integers(0, 9), min_size=1, max_size=3)))
        dtype = draw(st.sampled_from([torch.float32, torch.int16, torch.bfloat16, torch.uint8]))
        tensors.append((shape, dtype, draw(lays(one, len(shape))), draw(lays(other, len(shape)))))
    return one, other, tensors


def lay(tensor, how):
    """The tensor as it lies on this rank."""
    shape, ranks, placements = how
    return spread(tensor, DeviceMesh("cpu", torch.tensor(ranks).reshape(shape)), placements)


@settings(max_examples=12, deadline=None, phases=[Phase.explicit, Phase.reuse, Phase.generate])
@given(case=cases())
def test_tensors_on_any_mesh_come_back_on_any_other(case):
    """Bit for bit in each local shard; each rank reads its own elements, once."""
    one, other, tensors = case

    def state(rank, which, *, empty):
        made = {}
        for n, (shape, dtype, *hows) in enumerate(tensors):
            full = torch.zeros(shape, dtype=dtype) if empty else whole(shape, n, dtype)
            made[str(n)] = lay(full, hows[which])
        return made

    store = saved(one, lambda rank: state(rank, 0, empty=False))

    def check(live, rank, read):
        due = state(rank, 1, empty=False)
        for name, tensor in live.items():
            assert torch.equal(local(tensor), local(due[name])), (name, rank)
            assert read.get(name, 0) == local(tensor).numel()

    restored(store, other, lambda rank: state(rank, 1, empty=True), check)


def test_a_sharded_tensor_comes_back_whole_and_a_whole_one_sharded():
    """Plain tensors and arrays take all of it, on one rank or several; and the other way round."""
    full = whole((7, 3), 1)

    def sharded(rank):
        return {"t": spread(full, init_device_mesh("cpu", (4,)), [Shard(0)])}

    def plain(state, rank, read):
        assert torch.equal(torch.as_tensor(state["t"]), full)
        assert read == {"t": 21}

    store = saved(4, sharded)
    for world in (1, 3):
        restored(store, world, lambda rank: {"t": torch.zeros(7, 3)}, plain)
        restored(store, world, lambda rank: {"t": torch.zeros(7, 3).numpy()}, plain)

    def parts(state, rank, read):
        assert torch.equal(local(state["t"]), local(sharded(rank)["t"]))

    for world in (1, 2):
        store = saved(world, lambda rank: {"t": full.clone()})
        restored(store, 4, lambda rank: {"t": fresh_like(sharded(rank)["t"])}, parts)


def test_a_tensor_saved_as_a_view_comes_back_sharded():
    """One that shared a larger memory is cut from that; from one that was not contiguous too."""
    memory = whole((6, 10), 3)
    state = {"all": memory, "column": memory[:, 4:7], "turned": memory[:, 1:3].T}

    def live(rank):
        mesh = init_device_mesh("cpu", (4,))
        return {name: spread(torch.zeros_like(t), mesh, [Shard(0)]) for name, t in state.items()}

    def check(got, rank, read):
        for name, tensor in state.items():
            due = spread(tensor.contiguous(), init_device_mesh("cpu", (4,)), [Shard(0)])
            assert torch.equal(local(got[name]), local(due)), name

    restored(saved(1, lambda rank: state), 4, live, check)


def tied(rank, world, *, zero=False, rows=5):
    """A tensor under two names, one of them detached, and one that is merely equal."""
    mesh = init_device_mesh("cpu", (world,))
    full = whole((rows, 2), 4)
    one = spread(torch.zeros_like(full) if zero else full, mesh, [Shard(0)])
    return {"a": one, "b": one, "c": one.detach(), "d": spread(full, mesh, [Shard(0)])}


@pytest.mark.parametrize("rows", [5, 1, 8])
def test_tied_tensors_are_told_alike_on_ranks_with_and_without_elements(rows):
    """Entries are equal on all ranks; the bytes are saved once, and read once."""
    store = saved(4, lambda rank: tied(rank, 4, rows=rows))
    kinds = {entry.path: type(entry) for entry in store.entries if entry.path}
    assert kinds == {"a": Tensor, "b": Alias, "c": Alias, "d": Tensor}

    def check(state, rank, read):
        assert torch.equal(local(state["b"]), local(tied(rank, 3, rows=rows)["a"]))
        assert sorted(read) == ["a", "d"] * bool(local(state["a"]).numel())

    restored(store, 3, lambda rank: tied(rank, 3, zero=True, rows=rows), check)
    state = {name: torch.zeros(rows, 2) for name in "abcd"}
    store.fill(match(state, store.entries))
    assert all(torch.equal(tensor, whole((rows, 2), 4)) for tensor in state.values())


def test_other_slices_of_a_larger_mesh_are_replicas():
    """Each slice of the mesh holds the same, and all of them share the writing."""

    def state(rank):
        mesh = init_device_mesh("cpu", (2, 3), mesh_dim_names=("dp", "tp"))
        flat = init_device_mesh("cpu", (2, 3), mesh_dim_names=("a", "b"))["a", "b"]._flatten("both")
        return {
            "tp": spread(whole((7,), 1), mesh["tp"], [Shard(0)]),
            "dp": spread(whole((7,), 2), mesh["dp"], [Shard(0)]),
            "both": spread(whole((7,), 3), flat, [Shard(0)]),
        }

    store = saved(6, state)
    layouts = {entry.path: entry.layout for entry in store.entries if entry.path}
    assert layouts["tp"] == Layout(
        shape=(2, 3), placements=("replicate", "shard:0"), names=("replicas", "tp")
    )
    assert layouts["dp"] == Layout(
        shape=(3, 2), placements=("replicate", "shard:0"), strides=(1, 3), names=("replicas", "dp")
    )
    assert layouts["both"] == Layout(shape=(6,), placements=("shard:0",), names=("both",))


def test_slices_are_found_without_what_newer_versions_of_torch_keep():
    """By the coordinates of a slice's ranks in the mesh it is cut from."""
    with on_rank(5, 8):
        mesh = init_device_mesh("cpu", (2, 2, 2), mesh_dim_names=("pp", "dp", "tp"))
        cut = [mesh[name] for name in ["pp", "dp", "tp", ("dp", "tp"), ("pp", "tp"), ("pp", "dp")]]
        cut += [mesh["pp", "dp"]._flatten("x"), mesh["pp", "tp"]._flatten("y"), mesh]
        for one in cut:
            assert torch.equal(_by_coordinates(one.mesh, _root(one).mesh), slices(one))
        assert _by_coordinates(torch.tensor([0, 3]), mesh.mesh).tolist() == [[0, 3]]
        assert _by_coordinates(torch.tensor([9, 10]), mesh.mesh).tolist() == [[9, 10]]


def test_slices_inside_a_stage_are_replicas_among_its_ranks_alone():
    """The other slices of the mesh are other stages."""

    def state(rank):
        mesh = init_device_mesh("cpu", (2, 2, 2), mesh_dim_names=("pp", "dp", "tp"))
        stage = rank // 4
        part = {f"layer{stage}": spread(whole((5,), stage), mesh["tp"], [Shard(0)])}
        return {"model": Stage(part, ranks=mesh["dp", "tp"])}

    store = saved(8, state)
    layouts = {entry.path: entry.layout for entry in store.entries if isinstance(entry, Tensor)}
    for stage in (0, 1):
        assert layouts[f"model/layer{stage}"] == Layout(
            shape=(2, 2),
            placements=("replicate", "shard:0"),
            names=("replicas", "tp"),
            start=4 * stage,
        )


def test_another_order_of_cutting_is_told_by_the_order_of_the_mesh():
    """Newer versions of torch can cut by the last mesh dimension first."""
    full = whole((13,), 1)

    def state(rank, *, zero=False):
        mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("x", "y"))
        turned = DeviceMesh("cpu", [[0, 2], [1, 3]])
        part = local(spread(torch.zeros_like(full) if zero else full, turned, [Shard(0), Shard(0)]))
        made = DTensor.from_local(
            part, mesh, [Shard(0), Shard(0)], run_check=False, shape=full.shape, stride=(1,)
        )
        order = type(made._spec.shard_order[0])(tensor_dim=0, mesh_dims=(1, 0))
        made._spec.shard_order = (order,)
        return {"t": made}

    with on_rank(0, 4):
        if not getattr(state(0)["t"]._spec, "shard_order", None):
            pytest.skip("this torch cuts from left to right only")
    store = saved(4, state)
    assert store.entries[1].layout == Layout(
        shape=(2, 2), placements=("shard:0", "shard:0"), strides=(1, 2), names=("y", "x")
    )
    got = {"t": torch.zeros(13)}
    store.fill(match(got, store.entries))
    assert torch.equal(got["t"], full)
    restored(store, 4, lambda rank: state(rank, zero=True), lambda live, rank, read: None)


def refused(make, kind, match_text, *, rank=0, world=2, told=None):
    """Saving it is refused by path."""
    with on_rank(rank, world), pytest.raises(kind, match=match_text) as caught:
        flatten({"model": {"w": make(init_device_mesh("cpu", (world,)))}}, rank=told or rank, world=world)
    return caught.value


def test_a_partial_value_is_refused():
    """It is none before it is reduced."""
    error = refused(
        lambda mesh: DTensor.from_local(torch.zeros(2), mesh, [Partial()], run_check=False),
        UnsupportedLeaf,
        r"model/w .*P\(sum\)",
    )
    assert "redistribute" in error.hint


def test_parts_that_are_cut_otherwise_than_torch_cuts_are_refused():
    """Where the bytes belong cannot be told; saving and filling alike."""

    def crooked(mesh):
        return DTensor.from_local(
            torch.zeros(2, 1), mesh, [Shard(0)], run_check=False, shape=(3, 1), stride=(1, 1)
        )

    refused(crooked, UnsupportedLeaf, r"model/w .* part of shape \[2, 1\].* give it \[1, 1\]", rank=1)
    with on_rank(1, 2), pytest.raises(RestoreMismatch, match=r"w cannot be filled: .*\[2, 1\]"):
        flat = flatten({"w": torch.zeros(3, 1)})
        match({"w": crooked(init_device_mesh("cpu", (2,)))}, flat.entries, rank=1, world=2)


def test_a_tensor_that_is_cut_into_millions_is_refused():
    """A manifest could not be held to its bounds."""
    finely = _StridedShard(0, split_factor=2**24)
    refused(
        lambda mesh: DTensor.from_local(
            torch.zeros(2), mesh, [finely], run_check=False, shape=(4,), stride=(1,)
        ),
        UnsupportedLeaf,
        "more than",
    )


def test_a_process_that_torch_and_everstep_number_otherwise_is_refused():
    """Its part would be written as another's."""
    refused(
        lambda mesh: spread(torch.zeros(4), mesh, [Shard(0)]),
        UsageError,
        "as rank 0, and everstep as rank 1",
        told=1,
    )


def test_a_tensor_on_several_ranks_inside_per_rank_is_refused():
    """Each rank has its own there, whole."""
    refused(lambda mesh: PerRank(spread(torch.zeros(4), mesh, [Shard(0)])), UnsupportedLeaf, "PerRank")


def test_another_shape_is_a_mismatch_by_the_whole_shape():
    """Not by the part that is here."""
    flat = flatten({"w": torch.zeros(6)})
    with on_rank(0, 2), pytest.raises(RestoreMismatch, match=r"w has shape \[12\] .* \[6\]"):
        mesh = init_device_mesh("cpu", (2,))
        match({"w": spread(torch.zeros(12), mesh, [Shard(0)])}, flat.entries, rank=0, world=2)
