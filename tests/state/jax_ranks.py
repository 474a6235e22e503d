"""What the tests of sharded jax arrays run in processes of their own: see `tests.jax_world`."""

import math
import traceback
from pathlib import Path

import jax
import msgspec
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from jax.sharding import NamedSharding, PartitionSpec

from everstep.format.box import Box
from everstep.format.dtypes import ITEM_BYTES
from everstep.format.entries import Entry
from everstep.format.layouts import parts, ranks_of, sharers
from everstep.state import flatten, match
from everstep.state.jax_layouts import _gridded, _named, box_of, layout_of
from everstep.state.jax_sharded import JaxSharded

P = PartitionSpec
jnp = jax.numpy


def each(names):
    """Several of the functions below in one process, which takes a second to start: what each gives, or why it fails."""
    found = {}
    for name in names:
        try:
            found[name] = ["", globals()[name]()]
        except BaseException:  # noqa: BLE001  # the test that asks for it raises it
            found[name] = [traceback.format_exc(), None]
    return found


# --- layouts, on one process whose devices are taken for those of several


SIZES = [(1,), (2,), (8,), (1, 4), (2, 2), (2, 3), (3, 2), (2, 4), (4, 2), (2, 2, 2), (4, 1, 2), (2, 1, 3)]


@st.composite
def shardings(draw):
    """A mesh of up to 8 devices in any order, and a spec with axes in any order on any dimension."""
    sizes = draw(st.sampled_from(SIZES))
    devices = jax.devices()[: math.prod(sizes)]
    if draw(st.booleans()):
        order = np.random.default_rng(draw(st.integers(0, 10**6))).permutation(len(devices))
        devices = [devices[n] for n in order]
    names = ["x", "y", "z"][: len(sizes)]
    mesh = jax.sharding.Mesh(np.array(devices).reshape(sizes), names)
    ndim = draw(st.integers(0, 3))
    named = [[] for _ in range(ndim)]
    if ndim:
        for axis in draw(st.permutations(names)):
            where = draw(st.integers(-1, ndim - 1))
            if where >= 0:
                named[where].append(axis)
    spec = P(*[tuple(axes) if len(axes) != 1 else axes[0] for axes in named])
    cut = [math.prod(sizes[names.index(axis)] for axis in axes) for axes in named]
    shape = tuple(count * draw(st.sampled_from([1, 2, 3, 0])) for count in cut)
    each = draw(st.sampled_from([1, 2, 4]))
    return NamedSharding(mesh, spec), shape, each


def of_four(device):
    """Four devices in a process."""
    return device.id // 4


def of_two(device):
    """Two."""
    return device.id // 2


def of_one(device):
    """One."""
    return device.id


RANK_OF = {1: of_one, 2: of_two, 4: of_four}


def agree(layout, sharding, shape, rank_of):
    """Each rank has the boxes that jax gives its devices, and shares each with the ranks that have it."""
    held = {}
    for device, index in sharding.devices_indices_map(shape).items():
        box = box_of(index, shape)
        if box.elements:
            held.setdefault(box, set()).add(rank_of(device))
    for rank in {rank_of(device) for device in sharding.device_set}:
        found = parts(layout, shape, rank)
        assert {part.box for part in found} == {box for box, ranks in held.items() if rank in ranks}
        for part in found:
            assert set(sharers(layout, rank, part.coordinate)) == held[part.box], (layout, part)


def agree_in_blocks(sharding, shape, rank_of):
    """Each rank's blocks have the bytes of their boxes, and name the ranks whose devices have the same."""
    host = np.arange(math.prod(shape), dtype="int32").reshape(shape)
    array = jax.device_put(host, sharding)
    layout = layout_of(sharding, shape, rank_of)
    for rank in {rank_of(device) for device in sharding.device_set}:
        held = JaxSharded(array=array, extra={}, origin=array, layout=layout, rank=rank)
        for block in held.blocks():
            inside = tuple(slice(o, o + n) for o, n in zip(block.box.offsets, block.box.sizes, strict=True))
            assert bytes(block.part.view()) == host[inside].tobytes()
            indices = sharding.devices_indices_map(shape).items()
            ranks = {rank_of(device) for device, index in indices if box_of(index, shape) == block.box}
            assert set(block.replicas) == ranks


def random_layouts():
    """All layouts agree with jax."""

    @settings(max_examples=200, deadline=None, derandomize=True, database=None)
    @given(shardings())
    def check(drawn):
        sharding, shape, each = drawn
        agree(_named(sharding, RANK_OF[each]), sharding, shape, RANK_OF[each])
        agree(_gridded(sharding, shape, RANK_OF[each]), sharding, shape, RANK_OF[each])
        agree_in_blocks(sharding, shape, RANK_OF[each])

    check()


def regular_layouts():
    """Layouts of meshes whose axes run over processes and their devices."""
    mesh = jax.make_mesh((2, 4), ("data", "model"))
    found = {}
    for name, spec in {
        "both": P("data", "model"),
        "model": P("model"),
        "turned": P(("model", "data")),
    }.items():
        layout = layout_of(NamedSharding(mesh, spec), (8, 8), of_two)
        found[name] = [
            layout.shape,
            layout.placements,
            layout.names,
            layout.start,
            layout.strides,
            layout.ranks,
        ]
    return found


def other_shardings():
    """Shardings that are not named."""
    from jax._src import sharding_impls

    named = NamedSharding(jax.make_mesh((2, 4), ("x", "y")), P("y", "x"))
    gspmd = sharding_impls.GSPMDSharding(named._device_assignment, named._to_xla_hlo_sharding(2))
    agree(layout_of(gspmd, (8, 6), of_two), gspmd, (8, 6), of_two)
    if hasattr(sharding_impls, "PmapSharding"):  # until jax 0.9
        pmapped = sharding_impls.PmapSharding.default((8, 3), 0, jax.devices())
        agree(layout_of(pmapped, (8, 3), of_two), pmapped, (8, 3), of_two)

    class Odd(jax.sharding.Sharding):
        device_set = property(lambda self: set(jax.devices()[:2]))
        is_fully_replicated = False
        is_fully_addressable = True

        def devices_indices_map(self, shape):
            return dict(zip(jax.devices(), ((slice(0, 1),), (slice(1, 8),)), strict=False))

    assert layout_of(Odd(), (8,), of_one) is None


# --- real processes


def numbers(shape, dtype, seed=0):
    """The same array in every process."""
    made = np.random.default_rng(seed).integers(0, 7, shape)
    return np.asarray(jnp.asarray(made).astype(dtype))


def placed(host, sharding):
    """A global array of which each process makes its own part."""
    return jax.make_array_from_callback(host.shape, sharding, lambda index: host[index])


MESH = (2, 2)


def shardings_by_name(turned):
    """For each array of the state a sharding; ``turned`` gives others."""
    devices = np.array(sorted(jax.devices(), key=lambda device: device.id)).reshape(MESH)
    mesh = jax.sharding.Mesh(devices.T if turned else devices, ("x", "y"))
    line = jax.sharding.Mesh(devices.reshape(-1), ("all",))
    specs = {
        "rows": (mesh, P("y") if turned else P("x")),
        "columns": (mesh, P(None, ("y", "x")) if turned else P(None, "y")),
        "both": (line, P(None, "all")) if turned else (mesh, P(("y", "x"))),
        "half": (mesh, P("y", "x") if turned else P("x", "y")),
        "all": (line, P()) if turned else (mesh, P()),
        "cube": (mesh, P("x", None, "y") if turned else P(None, ("x", "y"))),
        "empty": (mesh, P("x")),
        "small": (mesh, P("x")),
    }
    return {name: NamedSharding(mesh, spec) for name, (mesh, spec) in specs.items()}


SHAPES = {
    "rows": ((8, 3), "float32"),
    "columns": ((3, 8), "bfloat16"),
    "both": ((4, 4), "int8"),
    "half": ((4, 6), "float16"),
    "all": ((5,), "float32"),
    "cube": ((2, 4, 2), "complex64"),
    "empty": ((0, 3), "float32"),
    "small": ((4,), "int4"),
}


def make_state(*, seed, turned=False):
    """Arrays over all processes, one here, typed keys over all, one array under two names."""
    by_name = shardings_by_name(turned)
    state = {
        name: placed(numbers(shape, dtype, seed), by_name[name]) for name, (shape, dtype) in SHAPES.items()
    }
    state["tied"] = state["rows"]
    state["here"] = jnp.full((3,), seed, "float32")
    local = NamedSharding(jax.sharding.Mesh(np.array(jax.local_devices()), ("x",)), P("x"))
    state["local"] = jax.device_put(np.arange(4.0, dtype="float32") + seed, local)
    words = numbers((4, 2), "uint32", seed)
    state["keys"] = jax.random.wrap_key_data(placed(words, by_name["rows"]), impl="threefry2x32")
    return state


def keep(flat):
    """The bytes of the pieces; both ways to them agree, and none is a copy."""
    kept = []
    for piece in flat.pieces:
        into = bytearray(piece.nbytes)
        piece.source.copy_to(memoryview(into))
        view = piece.source.view()
        assert view is None or bytes(view) == into
        assert view is not None or piece.path == "local" or not piece.nbytes, piece.path
        kept.append([piece.path, piece.box.offsets, piece.box.sizes, bytes(into), piece.replicas])
    return kept


def save():
    """Entries and bytes of this rank."""
    flat = flatten(make_state(seed=1), rank=jax.process_index(), world=jax.process_count())
    return [msgspec.json.encode(flat.entries), keep(flat)]


def fill(restoration, entries, kept):
    """Bring the bytes of the boxes that are wanted, and finish; gives how many bytes were wanted, and what was made."""
    whole = {}
    shapes = {entry.path: entry for entry in entries}
    for path, offsets, sizes, body, _ in kept:
        entry = shapes[path]
        item = ITEM_BYTES[entry.dtype]
        held = whole.setdefault(path, np.zeros((*entry.shape, item), np.uint8))
        inside = tuple(slice(o, o + n) for o, n in zip(offsets, sizes, strict=True))
        held[inside] = np.frombuffer(body, np.uint8).reshape(*sizes, item)
    count = 0
    for wanted in restoration.wanted:
        inside = tuple(slice(o, o + n) for o, n in zip(wanted.box.offsets, wanted.box.sizes, strict=True))
        body = whole[wanted.path][inside].tobytes()
        assert len(body) == wanted.nbytes
        wanted.target.copy_from(memoryview(bytearray(body)))
        count += wanted.nbytes
    return count, restoration.finish()


def restore(folder, turned):
    """Restore what all ranks saved into arrays that lie otherwise; what is here is as it was saved."""
    entries, kept = read(folder)
    live = make_state(seed=2, turned=turned)
    before = {name: array.sharding for name, array in live.items()}
    rank, world = jax.process_index(), jax.process_count()
    count, _ = fill(match(live, entries, rank=rank, world=world), entries, kept)
    expected = make_state(seed=1, turned=turned)
    for name, array in live.items():
        assert array.sharding == before[name], name
        assert array.dtype == expected[name].dtype, name
        pairs = (array, expected[name])
        if name == "keys":
            pairs = tuple(map(jax.random.key_data, pairs))
        for one, other in zip(*(each.addressable_shards for each in pairs), strict=True):
            assert one.index == other.index
            assert one.device == other.device
            assert np.asarray(one.data).tobytes() == np.asarray(other.data).tobytes(), name
    assert live.pop("tied") is live["rows"]
    return [count, sum(map(bytes_here, live.values()))]


def bytes_here(array):
    """The bytes of an array on this process's devices, each box once."""
    if array.dtype.name.startswith("key"):
        array = jax.random.key_data(array)
    return sum(
        {str(shard.index): np.asarray(shard.data).nbytes for shard in array.addressable_shards}.values()
    )


def read(folder):
    """What the parent wrote down of all ranks' saves."""
    text, kept = msgspec.msgpack.decode(Path(folder, "saved").read_bytes())
    return msgspec.json.decode(text, type=list[Entry]), kept


def refusals():
    """Arrays over several processes that cannot be saved."""
    import pytest

    from everstep.errors import UsageError

    mesh = jax.sharding.Mesh(np.array(jax.devices()), ("x",))
    array = placed(np.zeros((4, 2), "float32"), NamedSharding(mesh, P("x")))
    rank, world = jax.process_index(), jax.process_count()
    with pytest.raises(UsageError, match=f"of which this is {rank}, and to everstep it is rank {1 - rank}"):
        flatten({"a": array}, rank=1 - rank, world=world)
    with pytest.raises(UsageError, match=r"1 ranks|process"):
        flatten({"a": array}, rank=0, world=1)
    flat = flatten({"a": array}, rank=rank, world=world)
    assert ranks_of(flat.entries[1].layout) == (0, 0, 1, 1)
    assert all(piece.replicas == (rank,) for piece in flat.pieces)
    assert [piece.box for piece in flat.pieces] == [Box((2 * rank + n, 0), (1, 2)) for n in range(2)]


def local_devices():
    """Arrays over the four devices of one process: saved whole, without a copy of the whole, and put back as they lie."""
    mesh = jax.make_mesh((2, 2), ("x", "y"), devices=jax.devices()[:4])
    specs = {"cut": P("y", "x"), "partly": P("x"), "copies": P()}
    by_name = {name: NamedSharding(mesh, spec) for name, spec in specs.items()}

    def state(seed):
        made = {
            name: jax.device_put(numbers((4, 6), "bfloat16", seed), each) for name, each in by_name.items()
        }
        return {**made, "wide": jax.device_put(numbers((4, 2), "complex64", seed), by_name["cut"])}

    source, live = state(1), state(2)
    flat = flatten(source)
    assert [piece.box for piece in flat.pieces] == [Box.whole(array.shape) for array in source.values()]
    assert [piece.source.view() is None for piece in flat.pieces] == [True, True, False, True]
    kept = []
    for piece in flat.pieces:
        into = bytearray(piece.nbytes)
        piece.source.copy_to(memoryview(into))
        assert into == np.asarray(source[piece.path]).tobytes()
        kept.append([piece.path, piece.box.offsets, piece.box.sizes, bytes(into), None])
    restoration = match(live, flat.entries)
    wanted = {(each.path, each.box) for each in restoration.wanted}
    fill(restoration, flat.entries, kept)
    for name, array in live.items():
        assert array.sharding == source[name].sharding
        assert np.asarray(array).tobytes() == np.asarray(source[name]).tobytes()
        assert {box for path, box in wanted if path == name} == {
            box_of(shard.index, array.shape) for shard in array.addressable_shards
        }
