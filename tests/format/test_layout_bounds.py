"""Every bound of a layout, each by one that breaks it alone."""

import msgspec
import pytest

from everstep.errors import InvalidManifest
from everstep.format.check_layouts import check_layout
from everstep.format.entries import Container, Layout, Tensor
from everstep.format.faults import Faults
from everstep.format.manifest import IndexRef
from everstep.format.wire import from_bytes, to_bytes
from tests.format.examples import INDEX, MANIFEST, digest
from tests.format.test_wire import changed

GOOD = Layout(shape=(2, 4), placements=("strided:0:4", "shard:1"))
BAD = {
    "no mesh": ({"shape": (), "placements": ()}, "mesh"),
    "an empty mesh dimension": ({"shape": (0, 4)}, "mesh"),
    "a negative mesh dimension": ({"shape": (-2, -4)}, "mesh"),
    "too large a mesh": ({"shape": (1001, 1000)}, "mesh"),
    "a mesh of too many dimensions": ({"shape": (1,) * 65, "placements": ("replicate",) * 65}, "mesh"),
    "names that do not fit": ({"names": ("a",)}, "names"),
    "a placement too few": ({"placements": ("replicate",)}, "placements"),
    "an unknown placement": ({"placements": ("torn", "replicate")}, "placements"),
    "a dimension that the tensor has not": ({"placements": ("shard:2", "replicate")}, "placements"),
    "a strided one that it has not": ({"placements": ("strided:2:1", "replicate")}, "placements"),
    "a negative dimension": ({"placements": ("shard:-1", "replicate")}, "placements"),
    "a factor of nothing": ({"placements": ("strided:0:0", "replicate")}, "placements"),
    "a factor too few": ({"placements": ("strided:0", "replicate")}, "placements"),
    "a factor too many": ({"placements": ("shard:0:2", "replicate")}, "placements"),
    "cut too fine": ({"placements": ("strided:0:2097153", "replicate")}, "placements"),
    "a negative start": ({"start": -1}, "start"),
    "a start far away": ({"start": 10**6}, "start"),
    "strides that do not fit": ({"strides": (1,)}, "strides"),
    "a negative stride": ({"strides": (4, -1), "start": 3}, "strides"),
    "a stride too long": ({"strides": (10**6 + 1, 1)}, "strides"),
    "a rank beyond all": ({"strides": (10**6, 1)}, "ranks"),
    "ranks too few": ({"ranks": tuple(range(7))}, "ranks"),
    "a negative rank": ({"ranks": (-1, *range(7))}, "ranks"),
    "a listed rank beyond all": ({"ranks": (*range(7), 10**6)}, "ranks"),
    "ranks beside a start": ({"ranks": tuple(range(8)), "start": 1}, "ranks"),
    "ranks beside strides": ({"ranks": tuple(range(8)), "strides": (4, 1)}, "ranks"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_layout_out_of_bounds_is_refused(name):
    """With the place."""
    fields, field = BAD[name]
    with pytest.raises(InvalidManifest) as caught:
        check_layout(msgspec.structs.replace(GOOD, **fields), 2, "layout", Faults("x"))
    assert caught.value.fields["field"] == f"layout.{field}"


@pytest.mark.parametrize(
    "layout",
    [
        GOOD,
        Layout(shape=(1,), placements=("replicate",), start=10**6 - 1),
        Layout(shape=(1000, 1000), placements=("replicate", "shard:1"), names=("a", "b")),
        Layout(shape=(2, 4), placements=("strided:0:2097152", "replicate")),
        Layout(shape=(2, 4), placements=("shard:0", "shard:0"), strides=(0, 1)),
        Layout(shape=(2,), placements=("replicate",), ranks=(10**6 - 1, 0)),
        Layout(shape=(2,), placements=("replicate",), ranks=(3, 3)),
    ],
)
def test_a_layout_just_inside_the_bounds_is_taken(layout):
    """The bounds refuse nothing that a training has."""
    check_layout(layout, 2, "layout", Faults("x"))


@pytest.mark.parametrize("layout", [GOOD, Layout(shape=(2,), placements=("shard:0",), ranks=(0, 7))])
@pytest.mark.parametrize("kind", ["manifest", "index"])
def test_a_rank_beyond_the_world_is_refused(layout, kind):
    """By the manifest and the index that hold the layout, when they are read and when they are written."""
    entries = (
        Container(path="", type="dict", keys=["x"]),
        Tensor(path="x", dtype="float32", shape=(8, 4), framework="torch", layout=layout),
    )
    empty = {"shards": (), "bytes": 0, "packs": ()}

    def of(world):
        if kind == "index":
            return INDEX, {"world": world, "entries": entries, **empty}
        refs = tuple(IndexRef(rank, digest("a"), 9) for rank in range(world))
        return MANIFEST, {"world": world, "entries": entries, "indexes": refs}

    struct, fields = of(8)
    assert from_bytes(changed(struct, **fields), type(struct)).entries == entries
    struct, fields = of(7)
    with pytest.raises(InvalidManifest, match=r"rank 7 .* 7 ranks") as caught:
        from_bytes(changed(struct, **fields), type(struct))
    assert caught.value.fields["field"] == "entries[1].layout.ranks"
    with pytest.raises(InvalidManifest):
        to_bytes(msgspec.structs.replace(struct, **fields))
