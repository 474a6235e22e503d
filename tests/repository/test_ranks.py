"""Saves of several ranks: compact indexes, outlines, and what is refused before anything is committed."""

from __future__ import annotations

import re
from dataclasses import replace

import msgspec
import numpy as np
import pytest

from everstep.errors import (
    DisagreeingPlans,
    DuplicateRank,
    InvalidManifest,
    SaveFailed,
    SaveTimeout,
)
from everstep.format.box import Box
from everstep.format.digests import digest_of
from everstep.format.entries import Alias, Container, Tensor, Value
from everstep.format.layouts import make_layout
from everstep.format.outline import Claim, Outline
from everstep.format.wire import from_bytes, to_bytes
from everstep.repository.agreement import check_layouts
from everstep.repository.attempts import claim
from everstep.repository.catalogue import newest
from everstep.repository.copying import copy
from everstep.repository.decisions import decision
from everstep.repository.fork import fork
from everstep.repository.keys import index_key, save_prefix
from everstep.repository.manifests import make_manifest
from everstep.repository.objects import create_same
from everstep.repository.reading import load_index, read_indexes, read_manifest
from everstep.repository.saves import begin, commit, committed_bytes, parse_committed, write_index
from everstep.repository.verify import verify
from everstep.store.count import Count
from everstep.store.memory import MemoryStore
from everstep.transfer.compare import compare
from everstep.transfer.contents import Contents
from tests.repository.rank_worlds import (
    SHAPE,
    Held,
    State,
    array,
    boxes,
    index_of,
    planned,
    put_ranks,
    state,
    tensor,
    written,
)
from tests.repository.worlds import keys, no_sleep, started, world

WAYS = pytest.mark.parametrize("by_outlines", [True, False], ids=["outlines", "reading"])


def states(ranks=3):
    """Each rank's state."""
    return [state(rank, ranks) for rank in range(ranks)]


def changed(one, path, entry=None, *, held=None):
    """A state with another entry at a path, or none, and what it holds changed."""
    entries = tuple(entry if found.path == path else found for found in one.entries)
    return State(
        tuple(found for found in entries if found is not None),
        one.held if held is None else tuple(held(one.held)),
    )


def committed(repo, save, outlines, by_outlines):
    """Commit one way or the other."""
    return commit(repo, save, outlines if by_outlines else None, timeout_s=0, sleep=no_sleep)


def whole(repo, checkpoint):
    """Every tensor of a checkpoint, read from its chunks."""
    contents = Contents(repo, checkpoint)
    tensors = [entry for entry in contents.manifest.entries if isinstance(entry, Tensor)]
    bodies = contents.read([(entry.path, Box.whole(entry.shape)) for entry in tensors])
    return {
        entry.path: np.frombuffer(body, np.uint8).reshape(entry.shape)
        for entry, body in zip(tensors, bodies, strict=True)
    }


@pytest.mark.parametrize(("ranks", "mesh"), [(1, None), (3, None), (4, (2, 2))])
def test_what_several_ranks_saved_is_one_state(ranks, mesh):
    """Sharded, replicated, by rank and by stage: every leaf is there, once, to the bit."""
    repo, attempt = started(ranks=ranks)
    made = put_ranks(repo, attempt, 7, mesh=mesh)
    assert made.world == ranks
    assert made.metrics == {"loss": 0.5}
    found = whole(repo, made)
    paths = ["model/w", "model/b", *(f"loader/{r}" for r in range(ranks)), "part/layers/table"]
    assert sorted(found) == sorted([*paths, *(f"part/layers/{r}" for r in range(ranks))])
    assert all((body == array(path, body.shape)).all() for path, body in found.items())
    assert verify(repo, made) == []
    entries = {entry.path: entry for entry in read_manifest(repo, made).entries}
    assert entries["loader"].keys == list(range(ranks))
    assert entries["part/layers"].keys == ["table", *map(str, range(ranks))]
    assert entries["part"].name == "Stage0"


def test_a_commit_from_outlines_asks_for_one_list():
    """No index is read, whatever the number of ranks; then the manifest and the record are made."""
    store = Count(MemoryStore())
    repo, attempt = started(store, ranks=3)
    save, outlines = written(repo, attempt, 1, states())
    store.clear()
    committed(repo, save, outlines, by_outlines=True)
    assert [(verb, key.split("/")[2]) for verb, key in store.log] == [
        ("list", "saves"),
        ("create", "saves"),
        ("create", "commits"),
    ]


def test_both_ways_make_the_same_manifest():
    """From outlines that went through an exchange in any order, and from indexes that were read."""
    made = []
    for by_outlines in (True, False):
        repo, attempt = started(ranks=4)
        save, outlines = written(repo, attempt, 1, [state(rank, 4, mesh=(2, 2)) for rank in range(4)])
        told = [from_bytes(to_bytes(one), Outline) for one in reversed(outlines)]
        manifest = read_manifest(repo, committed(repo, save, told, by_outlines))
        text = to_bytes(manifest).decode().replace(str(save.id), "SAVE")
        made.append([text.split('"indexes"')[0], text.split('"entries"')[1].split('"packs"')[0]])
    assert made[0] == made[1]
    again = commit(repo, save, outlines, timeout_s=0, sleep=no_sleep)
    assert again == commit(repo, save, timeout_s=0, sleep=no_sleep)
    assert len(keys(repo.store, f"{save_prefix('run', save.id)}manifest")) == 1


def test_an_index_leaves_out_what_rank_0_has_too():
    """Rank 0 lists all, the others what is below PerRank and Stage; their shards are of all tensors."""
    repo, attempt = started(ranks=3)
    save, outlines = written(repo, attempt, 1, states())
    first, second, _ = [load_index(repo, "run", save.id, one.ref) for one in outlines]
    assert not first.compact
    assert [entry.path for entry in first.entries][:5] == ["", "model", "model/w", "model/b", "model/tied"]
    assert second.compact
    assert [entry.path for entry in second.entries] == [
        "loader",
        "loader/1",
        "part",
        "part/layers",
        "part/layers/table",
        "part/layers/1",
    ]
    assert second.meta.metrics == {}
    assert "model/w" in {shard.path for shard in second.shards}


def test_a_rank_with_another_plan_lists_all():
    """So that it can be said what differs."""
    repo, attempt = started(ranks=3)
    found = states()
    found[2] = changed(found[2], "step", Value(path="step", value=8))
    save, outlines = written(repo, attempt, 1, found)
    assert [one.compact for one in outlines] == [False, True, False]
    assert len(load_index(repo, "run", save.id, outlines[2].ref).entries) == len(found[2].entries)


def of_rank_1(change):
    """All ranks' states, that of rank 1 changed."""
    found = states()
    found[1] = change(found[1])
    return found


def with_extra(one):
    """A state with a leaf more."""
    root = Container(path="", type="dict", keys=["model", "loader", "part", "step", "extra"])
    more = changed(one, "", root)
    return State((*more.entries, Value(path="extra", value=1)), more.held)


def without_bias(one):
    """A state without one of its leaves."""
    model = Container(path="model", type="module", keys=["w", "tied"], name="torch.nn.Module")
    less = changed(changed(one, "model", model), "model/b", None)
    return State(less.entries, tuple(held for held in one.held if held.path != "model/b"))


def relaid(one, entry):
    """A state of rank 1 with a tensor laid out in another way."""
    held = [found for found in one.held if found.path != entry.path]
    return changed(one, entry.path, entry, held=lambda _: [*boxes(entry, 1), *held])


COLUMNS = make_layout(shape=(3,), ranks=range(3), placements=("shard:1",))
REFUSED = {
    "a shape": (lambda one: changed(one, "model/b", tensor("model/b", (6,))), "model/b", r"\[5\].*\[6\]"),
    "an element type": (
        lambda one: changed(one, "model/b", msgspec.structs.replace(tensor("model/b", (5,)), dtype="int8")),
        "model/b",
        r"rank 0, 2: torch tensor uint8\[5\]; rank 1: torch tensor int8\[5\]",
    ),
    "a layout": (
        lambda one: relaid(one, tensor("model/w", SHAPE, COLUMNS)),
        "model/w",
        r"shard:0 on a mesh \[3\] of ranks 0 to 2; rank 1: .* shard:1",
    ),
    "a kind": (
        lambda one: changed(one, "model/tied", Value(path="model/tied", value=[1])),
        "model/tied",
        r"the memory of 'model/w'; rank 1: value \[1\]",
    ),
    "what is tied": (
        lambda one: changed(one, "model/tied", Alias(path="model/tied", of="model/b")),
        "model/tied",
        "the memory of 'model/b'",
    ),
    "a value": (
        lambda one: changed(one, "step", Value(path="step", value=8)),
        "step",
        "rank 0, 2: value 7; rank 1: value 8",
    ),
    "a leaf more": (with_extra, "extra", "rank 0, 2: there is none; rank 1: value 1"),
    "a leaf less": (without_bias, "model/b", "rank 0, 2: torch .*; rank 1: there is none"),
}


@WAYS
@pytest.mark.parametrize("name", REFUSED)
def test_a_leaf_that_differs_between_ranks_is_named(name, by_outlines):
    """Its path, both descriptions and the ranks; no checkpoint is made, and the next attempt gives the save up."""
    change, path, words = REFUSED[name]
    repo, attempt = started(ranks=3)
    save, outlines = written(repo, attempt, 1, of_rank_1(change))
    with pytest.raises(DisagreeingPlans, match=f"'{path}'.*{words}") as caught:
        committed(repo, save, outlines, by_outlines)
    assert caught.value.fields["path"] == path
    assert caught.value.fields["ranks"] == ((0, 2), (1,))
    claim(repo, "run", owner="next", world=3)
    assert decision(repo, "run", save.id).state == "aborted"
    assert path in decision(repo, "run", save.id).why


def below_stage(entry):
    """The states of three ranks, of which rank 1 describes the table of all stages so."""
    return of_rank_1(lambda one: changed(one, "part/layers/table", entry))


@WAYS
@pytest.mark.parametrize(
    "entry",
    [tensor("part/layers/table", (4,)), Value(path="part/layers/table", value=1)],
    ids=["shape", "kind"],
)
def test_a_leaf_of_two_stages_that_differs_is_named(entry, by_outlines):
    """What two stages have under one path must be the same leaf."""
    repo, attempt = started(ranks=3)
    found = below_stage(entry)
    found[1] = State(found[1].entries, tuple(one for one in found[1].held if one.path != "part/layers/table"))
    save, outlines = written(repo, attempt, 1, found)
    with pytest.raises(DisagreeingPlans, match=r"'part/layers/table' .*rank 0: .*; rank 1: ") as caught:
        committed(repo, save, outlines, by_outlines)
    assert caught.value.fields["path"] == "part/layers/table"


def with_bytes(path, body):
    """A change of what a rank holds of a tensor."""

    def change(held):
        return [replace(one, body=body) if one.path == path else one for one in held]

    return lambda one: State(one.entries, tuple(change(one.held)))


@WAYS
def test_a_table_of_two_stages_with_other_bytes_is_named(by_outlines):
    """Equal bytes are one leaf; other bytes for the same box are refused, with leaf and ranks."""
    repo, attempt = started(ranks=3)
    save, outlines = written(repo, attempt, 1, of_rank_1(with_bytes("part/layers/table", b"abc")))
    with pytest.raises(DisagreeingPlans, match=r"'part/layers/table'.*other bytes for its \[0:3\]") as caught:
        committed(repo, save, outlines, by_outlines)
    assert caught.value.fields["ranks"] == ((0, 2), (1,))


@WAYS
@pytest.mark.parametrize("path", ["model/w", "part/layers/1", "loader/1"])
def test_a_leaf_of_which_a_part_was_not_written_is_named(path, by_outlines):
    """The leaf, and what is missing of it."""
    repo, attempt = started(ranks=3)
    found = states()
    writes = [n for n in planned(1, 3, found[1]) if found[1].held[n].path != path]
    save, outlines = written(repo, attempt, 1, found, writes={1: writes})
    with pytest.raises(DisagreeingPlans, match=f"'{path}'.*no rank wrote all of it, for instance") as caught:
        committed(repo, save, outlines, by_outlines)
    assert caught.value.fields["path"] == path
    assert newest(repo, "run") is None


@WAYS
@pytest.mark.parametrize(("body", "refused"), [(None, False), (b"other", True)])
def test_a_replica_that_two_ranks_wrote(body, refused, by_outlines):
    """The same bytes do no harm; other bytes are refused by leaf and ranks."""
    repo, attempt = started(ranks=3)
    found = states()
    if body is not None:
        found[1:] = [with_bytes("model/b", body)(one) for one in found[1:]]
    bias = next(n for n, held in enumerate(found[0].held) if held.path == "model/b")
    writes = {rank: sorted({*planned(rank, 3, one), bias}) for rank, one in enumerate(found)}
    save, outlines = written(repo, attempt, 1, found, writes=writes)
    if not refused:
        made = committed(repo, save, outlines, by_outlines)
        assert (whole(repo, made)["model/b"] == array("model/b", (5,))).all()
        return
    with pytest.raises(DisagreeingPlans, match=r"'model/b'.*other bytes for its \[0:5\]") as caught:
        committed(repo, save, outlines, by_outlines)
    assert caught.value.fields["ranks"] == ((0,), (1, 2))


def test_a_box_that_a_rank_does_not_have_by_its_layout_is_refused():
    """No reader would look for it there. The rank is told before it writes its index."""
    repo, attempt = started(ranks=3)
    save = begin(repo, attempt, 1)
    one = states()[1]
    moved = tuple(
        replace(held, box=Box((0, 0), held.box.sizes)) if held.path == "model/w" else held
        for held in one.held
    )
    with pytest.raises(SaveFailed, match=r"rank 1 .*by its layout the rank has no box .*'model/w'"):
        write_index(repo, save, index_of(repo, save, 1, State(one.entries, moved)))


@WAYS
def test_boxes_that_overlap_are_named(by_outlines):
    """Tensors without a layout can be cut in any way; their boxes must be equal or apart."""
    repo, attempt = started(ranks=2)
    entries = (Container(path="", type="dict", keys=["x"]), tensor("x", (4, 2)))
    held = [
        State(entries, (Held("x", Box((0, 0), (3, 2)), b"abcdef"),)),
        State(entries, (Held("x", Box((2, 0), (2, 2)), b"efgh"),)),
    ]
    save, outlines = written(repo, attempt, 1, held, writes={0: [0], 1: [0]})
    words = r"'x'.*rank 0 wrote its \[0:3, 0:2\], rank 1 its \[2:4, 0:2\]: they overlap"
    with pytest.raises(DisagreeingPlans, match=words) as caught:
        committed(repo, save, outlines, by_outlines)
    assert caught.value.fields["ranks"] == ((0,), (1,))


def test_a_layout_with_ranks_beyond_the_world_is_refused():
    """By the leaf and the rank that does not exist: before the index is written, and by whoever commits."""
    repo, attempt = started(ranks=2)
    layout = make_layout(shape=(3,), ranks=range(3), placements=("shard:0",))
    good = [state(rank, 2) for rank in range(2)]
    bad = changed(good[0], "model/w", tensor("model/w", SHAPE, layout))
    bad = State(bad.entries, tuple(held for held in bad.held if held.path != "model/w"))
    with pytest.raises(SaveFailed, match=r"layout of 'model/w' names rank 2; there are 2 ranks"):
        written(repo, attempt, 1, [bad, good[1]])
    save, outlines = written(repo, attempt, 1, good)
    manifest = make_manifest(
        save.plan, [msgspec.structs.replace(one, entries=bad.entries) for one in outlines[:1]]
    )
    with pytest.raises(DisagreeingPlans, match=r"layout of 'model/w' names rank 2, .* has 2 ranks") as caught:
        check_layouts(manifest)
    assert (caught.value.fields["path"], caught.value.fields["ranks"]) == ("model/w", (2,))


def test_outlines_must_be_those_of_all_ranks_and_of_this_save():
    """One missing, one of another save, one rank twice, one that the store does not know."""
    repo, attempt = started(ranks=3)
    other, others = written(repo, attempt, 1, states())
    save, outlines = written(repo, attempt, 2, states())
    wrong = msgspec.structs.replace(outlines[1], digest=digest_of(b"?"))
    cases = [
        (outlines[:2], SaveFailed, "no outline of rank 2"),
        ([*outlines[:2], others[2]], SaveFailed, f"is of run {other.id}"),
        ([*outlines, wrong], DuplicateRank, "rank 1 told of two indexes"),
        ([outlines[0], wrong, outlines[2]], DuplicateRank, "rank 1 told of index"),
    ]
    for told, error, words in cases:
        with pytest.raises(error, match=words):
            committed(repo, save, told, by_outlines=True)
    assert newest(repo, "run") is None
    assert committed(repo, save, outlines, by_outlines=True).step == 2


def test_an_outline_whose_index_is_not_in_the_store_is_waited_for():
    """Until the time-out; the rank is named."""
    repo, attempt = started(ranks=3)
    save, outlines = written(repo, attempt, 2, states())
    repo.store.delete(index_key("run", save.id, 1, outlines[1].digest))
    with pytest.raises(SaveTimeout, match="no index of rank 1"):
        committed(repo, save, outlines, by_outlines=True)


def test_the_verdict_is_handed_on_without_a_request():
    """The other ranks make the same checkpoint of its bytes."""
    repo, attempt = started(ranks=3)
    made = put_ranks(repo, attempt, 7)
    assert parse_committed(committed_bytes(made)) == made
    forked = fork(repo, made, "other")
    assert parse_committed(committed_bytes(forked)) == forked


@pytest.mark.parametrize("lost", [None, 0, 2])
def test_the_next_attempt_finishes_a_save_of_compact_indexes(lost):
    """Rank 0's index has what the others leave out; a rank's index missing, the save is given up."""
    repo, attempt = started(ranks=3)
    save, outlines = written(repo, attempt, 7, states())
    if lost is not None:
        repo.store.delete(index_key("run", save.id, lost, outlines[lost].digest))
    claim(repo, "run", owner="next", world=1)
    made = newest(repo, "run")
    if lost is None:
        assert made.save == save.id
        assert (whole(repo, made)["model/w"] == array("model/w", SHAPE)).all()
    else:
        assert made is None
        assert f"no index of rank {lost}" in decision(repo, "run", save.id).why


def test_a_fork_and_a_copy_of_a_checkpoint_of_several_ranks():
    """Both have the same leaves; the copy has the very same indexes, the fork reads none of them twice."""
    store = Count(MemoryStore())
    repo, attempt = started(store, ranks=3)
    made = put_ranks(repo, attempt, 7)
    store.clear()
    forked = fork(repo, made, "other")
    read = [key for verb, key in store.log if verb == "get" and "/rank-" in key]
    assert len(read) == len(set(read)) == 3
    elsewhere = world()
    (copied,) = copy(repo, [made], elsewhere)
    assert read_indexes(elsewhere, copied) == read_indexes(repo, made)
    for there, one in ((repo, forked), (elsewhere, copied)):
        assert verify(there, one) == []
        assert compare(Contents(repo, made), Contents(there, one)).differences == ()


def test_checkpoints_of_other_numbers_of_ranks_compare_by_what_they_hold():
    """The same tensor cut in three and in two has no difference, and one that changed has."""
    repo, attempt = started(ranks=3)
    three = put_ranks(repo, attempt, 7)
    two = put_ranks(repo, claim(repo, "run", owner="next", world=2), 8)
    differences = compare(Contents(repo, three), Contents(repo, two)).differences
    assert {one.path for one in differences} == {"loader/2", "part/layers/2"}


def planted(repo, made, change):
    """The error of reading a checkpoint whose second index says something else."""
    ref = read_manifest(repo, made).indexes[1]
    index = change(load_index(repo, "run", made.save, ref))
    body = to_bytes(index)
    key = index_key("run", made.save, 1, digest_of(body))
    create_same(repo.store, key, body)
    manifest = read_manifest(repo, made)
    refs = (manifest.indexes[0], type(ref)(1, digest_of(body), len(body)), manifest.indexes[2])
    return read_indexes(repo, made, manifest=msgspec.structs.replace(manifest, indexes=refs))


@pytest.mark.parametrize(
    "change",
    [
        {"path": "model/nothing"},
        {"path": "step"},
        {"offsets": (6, 0)},
        {"offsets": (0,)},
        {"sizes": (2, 4)},
    ],
    ids=str,
)
def test_a_shard_that_a_compact_index_does_not_describe_is_held_to_the_manifest(change):
    """It must be of a tensor there, a box inside, with as many bytes."""
    repo, attempt = started(ranks=3)
    made = put_ranks(repo, attempt, 7)

    def moved(index):
        n = next(n for n, shard in enumerate(index.shards) if shard.path == "model/w")
        shards = list(index.shards)
        shards[n] = msgspec.structs.replace(shards[n], **change)
        return msgspec.structs.replace(index, shards=tuple(shards))

    assert planted(repo, made, lambda index: index)[1].compact
    with pytest.raises(InvalidManifest, match="shards"):
        planted(repo, made, moved)


@pytest.mark.parametrize(
    "entries",
    [
        (Value(path="step", value=1),),
        (Container(path="model", type="module", keys=[]),),
        (Container(path="loader", type="per_rank", keys=[1]), Value(path="model/x", value=1)),
    ],
)
def test_a_compact_index_lists_only_what_is_a_ranks_own(entries):
    """Anything else is refused, on writing and on reading."""
    repo, attempt = started(ranks=3)
    found = index_of(repo, begin(repo, attempt, 8), 1, states()[1], writes=[])
    compact = msgspec.structs.replace(found, entries=entries, compact=True)
    with pytest.raises(InvalidManifest, match="entries"):
        to_bytes(compact)


@WAYS
def test_a_leaf_of_two_stages_must_be_whole_in_the_first(by_outlines):
    """A reader asks the ranks of the layout that the manifest has; what others have is no help to it."""
    repo, attempt = started(ranks=3)
    found = states()
    writes = [n for n in planned(0, 3, found[0]) if found[0].held[n].path != "part/layers/table"]
    save, outlines = written(repo, attempt, 1, found, writes={0: writes})
    with pytest.raises(DisagreeingPlans, match=r"'part/layers/table'.*no rank wrote all of it"):
        committed(repo, save, outlines, by_outlines)


def told_wrongly(rank, **fields):
    """The error of a commit by outlines of which one says something else than its index."""
    repo, attempt = started(ranks=3)
    save, outlines = written(repo, attempt, 1, states())
    outlines[rank] = msgspec.structs.replace(outlines[rank], **fields)
    with pytest.raises(DisagreeingPlans) as caught:
        committed(repo, save, outlines, by_outlines=True)
    assert newest(repo, "run") is None
    return caught.value.message


@pytest.mark.parametrize(
    ("rank", "fields", "words"),
    [
        (1, {"world": 4}, "rank 1 counts 4 ranks, and the save has 3"),
        (0, {"compact": True}, "rank 0 leaves out entries, which only other ranks may"),
        (2, {"plan": digest_of(b"?")}, "rank 2 leaves out entries that rank 0 describes differently"),
        (
            2,
            {"claims": (Claim("part/none", (0,), (1,), digest_of(b"")),)},
            "'part/none' .* no rank describes",
        ),
        (2, {"claims": (Claim("part/layers/2", (2,), (3,), digest_of(b"")),)}, r"its \[2:5\], which no rank"),
        (2, {"claims": ()}, "'part/layers/2' .* no rank wrote all of it"),
    ],
)
def test_outlines_that_cannot_be_are_refused(rank, fields, words):
    """Another world, entries left out that may not be, boxes of nothing: the rank or the leaf is named."""
    assert re.search(words, told_wrongly(rank, **fields))


def test_an_outline_with_a_layout_beyond_the_world_is_refused():
    """Though its writer should have seen it."""
    layout = make_layout(shape=(4,), ranks=range(4), placements=("shard:0",))
    entries = changed(states()[0], "model/w", tensor("model/w", SHAPE, layout)).entries
    assert "layout of 'model/w' names rank 3" in told_wrongly(0, entries=entries)


def test_a_compact_index_is_held_to_rank_0s_before_it_is_outlined():
    """A shard of what is no tensor there is named by the index's key."""
    repo, attempt = started(ranks=3)
    save, outlines = written(repo, attempt, 1, states())
    index = load_index(repo, "run", save.id, outlines[1].ref)
    shard = msgspec.structs.replace(index.shards[0], path="model/none")
    body = to_bytes(msgspec.structs.replace(index, shards=(shard, *index.shards[1:])))
    repo.store.delete(index_key("run", save.id, 1, outlines[1].digest))
    repo.store.create(index_key("run", save.id, 1, digest_of(body)), body)
    with pytest.raises(InvalidManifest, match=r"rank-0000001.*'model/none' is not a tensor"):
        committed(repo, save, outlines, by_outlines=False)
