"""The manifest's union of what the ranks describe."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from everstep.errors import DisagreeingPlans
from everstep.format.entries import Container, Tensor, Value
from everstep.format.outline import outline
from everstep.repository.manifests import union
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


def test_leaves_that_are_not_finite_are_gathered_from_all_ranks():
    """The manifest's marks are those of every rank; all else of its meta is rank 0's."""
    repo, attempt = started(ranks=2)
    save = begin(repo, attempt, 1)
    for rank, (bad, loss) in enumerate([(("b", "a"), 0.5), (("a", "c"), 0.7)]):
        index = make_index(save, {}, rank=rank, metrics={"loss": loss})
        write_index(repo, save, replace(index, meta=replace(index.meta, not_finite=bad)))
    from everstep.repository.reading import read_manifest

    manifest = read_manifest(repo, commit(repo, save, timeout_s=0, sleep=no_sleep))
    assert manifest.meta.not_finite == ("a", "b", "c")
    assert manifest.meta.metrics == {"loss": 0.5}
