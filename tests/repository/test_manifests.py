"""The manifest's union of what the ranks describe."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from everstep.errors import DisagreeingPlans
from everstep.format.entries import Container, Layout, Tensor, Value
from everstep.format.outline import outline
from everstep.repository.manifests import union
from everstep.repository.reading import read_manifest
from everstep.repository.saves import begin, commit, write_index
from tests.repository.worlds import PLAN, make_index, no_sleep, started


def tensor(path, size=4):
    """A tensor's entry."""
    return Tensor(path=path, dtype="uint8", shape=(size,), framework="numpy")


def united(*entries):
    """The union of each rank's entries."""
    repo, attempt = started(ranks=len(entries))
    save = begin(repo, attempt, 1)
    indexes = [
        replace(make_index(save, {}, rank=rank), entries=tuple(found)) for rank, found in enumerate(entries)
    ]
    return union(save.plan, [outline(index, digest=PLAN, size=1) for index in indexes])


def test_what_all_ranks_describe_alike_stands_once():
    """In the order of rank 0."""
    same = [Container(path="", type="dict", keys=["b", "a"]), tensor("b"), Value(path="a", value=1)]
    assert list(united(same, same, same)) == same


def test_what_differs_by_rank_is_joined_in_pre_order():
    """Every rank's part follows its container, and the container has the keys of all."""

    def rank(number):
        return [
            Container(path="", type="dict", keys=["loader", "w"]),
            Container(path="loader", type="per_rank", keys=[number]),
            Container(path=f"loader/{number}", type="list", length=1),
            Value(path=f"loader/{number}/0", value=number),
            tensor("w"),
        ]

    found = united(rank(0), rank(1))
    assert [entry.path for entry in found] == [
        "",
        "loader",
        "loader/0",
        "loader/0/0",
        "loader/1",
        "loader/1/0",
        "w",
    ]
    joined = found[1]
    assert isinstance(joined, Container)
    assert joined.keys == [0, 1]


@pytest.mark.parametrize(
    "other", [tensor("w", 5), Value(path="w", value=1), Container(path="w", type="list")]
)
def test_ranks_that_describe_a_leaf_differently_are_named(other):
    """The leaf and both ranks; no checkpoint is made of it."""
    root = Container(path="", type="dict", keys=["w"])
    with pytest.raises(DisagreeingPlans, match=r"describe 'w' differently .* rank 0: .*; rank 2: ") as caught:
        united([root, tensor("w")], [root, tensor("w")], [root, other])
    assert (caught.value.fields["path"], caught.value.fields["ranks"]) == ("w", ((0,), (2,)))


LAYOUTS = [Layout(shape=(2,), placements=(placement,)) for placement in ("shard:0", "replicate")]


def laid(path, layout):
    """A tensor's entry with a layout."""
    return replace(tensor(path), layout=layout)


@pytest.mark.parametrize(
    ("ours", "theirs", "path"),
    [
        (["a"], ["a", "b"], ""),
        ([laid("w", LAYOUTS[0])], [laid("w", LAYOUTS[1])], "w"),
    ],
)
def test_outside_a_stage_nothing_is_merged(ours, theirs, path):
    """Neither keys nor layouts, though the digests of the plans say that all is equal."""

    def listed(found):
        leaves = [tensor(one) if isinstance(one, str) else one for one in found]
        return [Container(path="", type="dict", keys=[leaf.path for leaf in leaves]), *leaves]

    with pytest.raises(DisagreeingPlans) as caught:
        united(listed(ours), listed(theirs))
    assert caught.value.fields["path"] == path


def test_below_a_stage_the_ranks_parts_are_united():
    """Keys in the order of ranks, at every depth; the lowest rank's layout and class name stand."""

    def rank(number, layout):
        return [
            Container(path="", type="dict", keys=["net", "step"]),
            Container(path="net", type="stage", keys=["layers", "tied"], name=f"Stage{number}"),
            Container(path="net/layers", type="module", keys=[f"l{number}", "all"], name=f"List{number}"),
            tensor(f"net/layers/l{number}"),
            Value(path="net/layers/all", value=1),
            laid("net/tied", layout),
            Value(path="step", value=7),
        ]

    found = united(rank(0, LAYOUTS[0]), rank(1, LAYOUTS[1]))
    assert [entry.path for entry in found] == [
        "",
        "net",
        "net/layers",
        "net/layers/l0",
        "net/layers/all",
        "net/layers/l1",
        "net/tied",
        "step",
    ]
    assert (found[1].name, found[2].name) == ("Stage0", "List0")
    assert found[2].keys == ["l0", "all", "l1"]
    assert found[6].layout == LAYOUTS[0]


@pytest.mark.parametrize(
    "theirs",
    [Container(path="net/x", type="list", length=1), Container(path="net/x", type="tuple", length=0)],
)
def test_below_a_stage_what_has_no_keys_must_be_equal(theirs):
    """A list of another length or type is no part of the same list."""

    def rank(entry):
        children = [Value(path="net/x/0", value=1)] if entry.length else []
        stage = Container(path="net", type="stage", keys=["x"])
        return [Container(path="", type="dict", keys=["net"]), stage, entry, *children]

    with pytest.raises(DisagreeingPlans, match="'net/x'"):
        united(rank(Container(path="net/x", type="list", length=0)), rank(theirs))


def test_leaves_that_are_not_finite_are_gathered_from_all_ranks():
    """The manifest's marks are those of every rank; all else of its meta is rank 0's."""
    repo, attempt = started(ranks=2)
    save = begin(repo, attempt, 1)
    for rank, (bad, loss) in enumerate([(("b", "a"), 0.5), (("a", "c"), 0.7)]):
        index = make_index(save, {}, rank=rank, metrics={"loss": loss})
        write_index(repo, save, replace(index, meta=replace(index.meta, not_finite=bad)))
    manifest = read_manifest(repo, commit(repo, save, timeout_s=0, sleep=no_sleep))
    assert manifest.meta.not_finite == ("a", "b", "c")
    assert manifest.meta.metrics == {"loss": 0.5}
