"""Packs that are kept for a few chunks: what needs these is written anew, and everything stays what it was."""

from __future__ import annotations

import pytest
from msgspec.structs import replace
from safetensors import numpy as safetensors

from everstep.errors import Archived, CheckpointPruned, CorruptChunk
from everstep.format.index import Index
from everstep.format.layouts import make_layout
from everstep.repository.attempts import claim
from everstep.repository.catalogue import checkpoints, find, newest, resolve
from everstep.repository.checkpoint import Checkpoint
from everstep.repository.copying import copy
from everstep.repository.fence import Attempt
from everstep.repository.fork import fork
from everstep.repository.keys import plans_prefix
from everstep.repository.reading import read_indexes, read_manifest
from everstep.repository.repository import Repository
from everstep.repository.saves import begin, commit, write_index
from everstep.repository.settle import undecided
from everstep.repository.tags import set_tag, tags
from everstep.repository.tombs import tomb
from everstep.repository.undelete import undelete
from everstep.repository.verified import mark_verified, verified
from everstep.repository.verify import verify
from everstep.retention.repack import Repacked, repack
from everstep.retention.repacking.moving import Spot, relocated
from everstep.retention.space import space
from everstep.retention.sweep import sweep
from everstep.store.count import Count
from everstep.store.memory import MemoryStore
from tests.repository.rank_worlds import State, boxes, index_of, joined, state, tensor, written
from tests.repository.worlds import (
    content,
    keys,
    known_chunks,
    no_sleep,
    overwrite,
    put,
    reopened,
    started,
    world,
)
from tests.retention.beside import Before
from tests.retention.thin import SHARED, bury_all, digests, leaves, thinned, total

HEADER = 4096


def freed(repo: Repository, done: Repacked) -> None:
    """Delete what a repack says that nobody needs."""
    for key in done.packs:
        repo.store.delete(key)


def whole(repo: Repository, run: str = "run") -> list[int]:
    """The steps of a run, every byte of which is there."""
    found = checkpoints(repo, run)
    assert [damage for one in found for damage in verify(repo, one)] == []
    return [one.step for one in found]


def test_a_pack_kept_for_one_leaf_can_go():
    """The leaf moves into one new pack that both checkpoints share; the old pack is needed by nobody."""
    repo, _, made = thinned()
    before = total(repo.store)
    done = repack(repo)
    assert [old.save for old, _ in done.rewritten] == [made[2].save, made[3].save]
    assert [key for key in done.packs if str(made[0].save) in key] == list(done.packs)
    assert done.bytes_written == HEADER + len(SHARED)
    freed(repo, done)
    assert total(repo.store) == before - done.bytes_freed
    assert whole(repo) == [40, 30]
    assert [content(repo, one) for one in checkpoints(repo, "run")] == [leaves(40), leaves(30)]
    places = digests(repo, *checkpoints(repo, "run"))
    assert all(len(found) == 1 for found in places.values()), "nothing is stored twice"
    assert space(repo, deep=True).sparse == 0
    assert done.gave_up == ""


def test_a_second_repack_does_nothing():
    """Nor does it read an index, once no pack of a pruned save is needed a little of."""
    store = Count(MemoryStore())
    repo, _, _ = thinned(store)
    freed(repo, repack(repo))
    store.clear()
    assert repack(repo) == Repacked(packs=(), bytes_freed=0, bytes_waiting=0, bytes_written=0, rewritten=())
    assert store.calls["create"] == store.calls["delete"] == 0


def test_all_but_the_id_stays_what_it_was():
    """Step, attempt, time, metrics, entries, reason and the fork's parent are the old checkpoint's."""
    repo, _, made = thinned()
    old = read_manifest(repo, made[3])
    repack(repo)
    new = find(repo, "run", 40)
    assert new.save != made[3].save
    assert new.replaces == str(made[3].save)
    same = ("step", "attempt", "created", "bytes", "world", "metrics", "forked_from", "reason")
    assert [getattr(new, name) for name in same] == [getattr(made[3], name) for name in same]
    again = read_manifest(repo, new)
    assert (again.entries, again.meta, again.created, again.bytes) == (
        old.entries,
        old.meta,
        old.created,
        old.bytes,
    )
    assert new.stored_bytes == 0, "its pack was written for step 30"


def test_every_name_leads_to_the_new_one():
    """Newest, step, save, tag, and the list with its tags; the tag itself is not touched."""
    repo, _, made = thinned()
    set_tag(repo, "best", made[2])
    done = repack(repo)
    news = {old.step: new for old, new in done.rewritten}
    assert newest(repo, "run") == news[40]
    assert resolve(repo, "run@30").save == resolve(repo, f"run@{made[2].save}").save == news[30].save
    assert resolve(repo, "tag:best").save == news[30].save
    assert resolve(repo, "tag:best").tags == ("best",)
    assert [(one.save, one.tags) for one in checkpoints(repo, "run")] == [
        (news[40].save, ()),
        (news[30].save, ("best",)),
    ]
    assert [tag.save for tag in tags(repo)] == [str(made[2].save)]
    set_tag(repo, "late", made[3])
    assert resolve(repo, "tag:late").save == news[40].save
    found = tomb(repo, "run", made[2].save)
    assert found is not None
    assert found.replaced_by == str(news[30].save)


def test_names_lead_on_over_several_repacks():
    """What was written anew twice is found by its first name."""
    repo, attempt, made = thinned(keep=3)
    set_tag(repo, "best", made[3])
    freed(repo, repack(repo))
    bury_all(repo, *checkpoints(repo, "run")[1:])
    later = put(repo, attempt, 50, {"frozen": SHARED}, bases=(find(repo, "run", 40),))
    freed(repo, repack(repo))
    assert whole(repo) == [50, 40]
    assert resolve(repo, "tag:best").save == find(repo, "run", 40).save
    assert content(repo, resolve(repo, f"run@{made[3].save}")) == leaves(40)
    assert content(repo, find(repo, "run", 50)) == {"frozen": SHARED}
    assert later.step == 50


def test_the_pack_opens_with_safetensors_alone(tmp_path):
    """A new pack is a safetensors file with a tensor under its name."""
    repo, _, _ = thinned()
    old = set(keys(repo.store, "packs/"))
    repack(repo)
    (new,) = set(keys(repo.store, "packs/")) - old
    path = tmp_path / "pack.safetensors"
    path.write_bytes(repo.store.get(new, 10**9))
    assert safetensors.load_file(path)["frozen"].tobytes() == SHARED


def test_many_chunks_go_into_packs_of_bounded_size():
    """Of a leaf in many chunks, packs take as many as fit, and their entries say which bytes these are."""
    repo, attempt = started()
    parts = {f"part{n}": bytes([n]) * 1000 for n in range(20)}
    first = put(repo, attempt, 1, {"dead": b"d" * 100_000, **parts})
    put(repo, attempt, 2, parts, bases=(first,))
    bury_all(repo, first)
    old = set(keys(repo.store, "packs/"))
    done = repack(repo, pack_bytes=6_000)
    new = set(keys(repo.store, "packs/")) - old
    assert sorted(found.size for found in repo.store.list("packs/") if found.key in new) == [
        HEADER + 2_000,
        *[HEADER + 6_000] * 3,
    ]
    freed(repo, done)
    assert whole(repo) == [2]
    assert content(repo, find(repo, "run", 2)) == parts


def test_forks_that_need_the_pack_are_written_anew_with_it():
    """Named or not: the chunk is stored once for the run and its fork, whose first checkpoint stays the fork's."""
    repo, _, made = thinned(keep=3)
    forked = fork(repo, made[1], "child")
    bury_all(repo, made[1])
    done = repack(repo, ["run"])
    assert [(old.run, old.step) for old, _ in done.rewritten if old.run == "child"] == [("child", 20)]
    freed(repo, done)
    assert (whole(repo), whole(repo, "child")) == ([40, 30], [20])
    new = find(repo, "child")
    assert new.forked_from == made[1].parent == forked.forked_from
    both = digests(repo, *checkpoints(repo, "run"), new)
    assert all(len(found) == 1 for found in both.values())
    claim(repo, "child", owner="test")
    assert resolve(repo, "child").save == new.save


def test_a_fork_that_was_cut_off_is_ended_after_its_parent_was_written_anew():
    """The same call again finds the parent under its new name and goes on."""
    repo, _, made = thinned()
    store = repo.store
    forked = fork(repo, made[3], "child")
    store.delete(next(key for key in keys(store, "runs/child/commits/") if str(forked.save) in key))
    for key in keys(store, plans_prefix("child")):
        store.delete(key)
    repack(repo)
    again = fork(repo, find(repo, "run", 40), "child")
    assert content(repo, again) == leaves(40)
    assert again.forked_from == made[3].parent


def test_ranks_and_compact_indexes():
    """Of many ranks each index is made again, compact ones stay compact, and every leaf of each rank is there."""
    repo, attempt = started(ranks=3)
    first, second = put_thin_ranks(repo, attempt)
    bury_all(repo, first)
    old = read_indexes(repo, second)
    done = repack(repo)
    assert len(done.packs) == 3
    new = find(repo, "run", 2)
    freed(repo, done)
    assert whole(repo) == [2]
    made = read_indexes(repo, new)
    assert [index.compact for index in made] == [False, True, True]
    assert [bytes_of(index) for index in made] == [bytes_of(index) for index in old]
    assert not [key for key in read_manifest(repo, new).packs if str(first.save) in key]
    assert len(read_manifest(repo, new).packs) == 1, "what three ranks need goes into one pack"
    assert [index.stored_bytes > 0 for index in made] == [True, False, False]


def bytes_of(index: Index) -> dict[tuple[str, tuple[int, ...]], list[str]]:
    """The digests of each box."""
    return {(one.path, one.offsets): [chunk.digest for chunk in one.chunks] for one in index.shards}


def put_thin_ranks(repo: Repository, attempt: Attempt) -> tuple[Checkpoint, Checkpoint]:
    """Two saves of all ranks; the second has a large tensor less, and the rest in the packs of the first."""
    world = attempt.world
    small = [state(rank, world) for rank in range(world)]
    layout = make_layout(shape=(world,), ranks=range(world), placements=("shard:0",))
    big = tensor("zz", (world * 5_000,), layout)
    large = [
        State(
            (replace(one.entries[0], keys=[*one.entries[0].keys, "zz"]), *one.entries[1:], big),
            (*one.held, *boxes(big, rank)),
        )
        for rank, one in enumerate(small)
    ]
    save, outlines = written(repo, attempt, 1, large)
    first = commit(repo, save, outlines, timeout_s=0, sleep=no_sleep)
    known = known_chunks(repo, [first])
    spots = {
        digest: Spot(key=key, offset=offset, length=length) for digest, (key, offset, length) in known.items()
    }
    save = begin(repo, attempt, 2, bases=(first,))
    outlines = []
    for rank, joined_save in enumerate(joined(save, attempt, small)):
        index = index_of(repo, joined_save, rank, small[rank])
        for key in index.packs:
            repo.store.delete(key)
        outlines.append(write_index(repo, joined_save, relocated(index, index.packs, spots)))
    return first, commit(repo, save, outlines, timeout_s=0, sleep=no_sleep)


def test_a_verified_checkpoint_stays_verified():
    """The mark goes over to the new one, whose moved bytes were read twice."""
    repo, _, made = thinned()
    mark_verified(repo, "run", made[2].save, by="verify")
    repack(repo)
    marked = verified(repo, "run")
    assert find(repo, "run", 30).save in marked
    assert find(repo, "run", 40).save not in marked


def test_a_mark_that_is_written_meanwhile_goes_over_too():
    """A verify that ends while a checkpoint is written anew: the new one has the mark before the old one goes."""
    repo, _, made = thinned()
    marks = Before(
        repo.store,
        "runs/run/commits/",
        lambda: mark_verified(repo, "run", made[2].save, by="verify"),
    )
    repack(reopened(repo, marks))
    assert find(repo, "run", 30).save in verified(repo, "run")


def test_damage_stops_it_before_anything_is_changed():
    """A chunk that is not what was written is named; the old checkpoints stand, and nothing is left undecided."""
    repo, _, made = thinned()
    key = next(key for key in keys(repo.store, "packs/") if str(made[0].save) in key)
    body = bytearray(repo.store.get(key, 10**9))
    body[HEADER + 10] ^= 1
    overwrite(repo.store, key, bytes(body))
    with pytest.raises(CorruptChunk, match="'frozen' of rank 0"):
        repack(repo)
    assert [one.save for one in checkpoints(repo, "run")] == [made[3].save, made[2].save]
    assert undecided(repo, "run") == []


def test_the_bytes_it_moves_are_bounded():
    """The chunk is read once, written once and read back once; each index twice, and never a large pack."""
    store = Count(MemoryStore())
    repo, _, _ = thinned(store)
    store.clear()
    repack(repo)
    packs = [(verb, key) for verb, key in store.log if key.startswith("packs/") and verb != "list"]
    assert [verb for verb, _ in packs] == ["get_range", "get_range", "create", "get_range"]
    assert store.bytes_in < HEADER + len(SHARED) + 12_000


def test_asked_to_stop_it_leaves_what_is_whole():
    """What was rewritten before stands, the save under way is given up, and the next call does the rest."""
    repo, _, _ = thinned(keep=3)
    for asked in (iter([False, True]), iter([False, False, True])):
        done = repack(repo, stop=lambda asked=asked: next(asked))
        assert (done.packs, done.gave_up) == ((), "asked to stop")
        assert done.bytes_freed == -done.bytes_written
        assert undecided(repo, "run") == []
    assert len(done.rewritten) == 1
    rest = repack(repo)
    assert (len(rest.rewritten), rest.bytes_written) == (2, 0), "the chunk lies in the new pack already"
    freed(repo, rest)
    assert whole(repo) == [40, 30, 20]


def test_a_pruned_checkpoint_is_not_brought_back():
    """One that is pruned while it is written anew stays pruned: the new one is given up."""
    repo, _, made = thinned(keep=3)

    class Rival(MemoryStore):
        """Prunes step 30 when its new indexes are written."""

        def create(self, key, body):
            repo.store.create(key, body)
            if "/saves/s0000000000000030" in key:
                bury_all(repo, made[2])

        get, get_range, list, delete = (
            repo.store.get,
            repo.store.get_range,
            repo.store.list,
            repo.store.delete,
        )

    done = repack(reopened(repo, Rival()))
    assert [old.step for old, _ in done.rewritten] == [20, 40]
    freed(repo, done)
    assert whole(repo) == [40, 20]
    with pytest.raises(CheckpointPruned):
        find(repo, "run", 30)
    assert undecided(repo, "run") == []


def test_undelete_means_what_has_the_place():
    """By step and by the old save: what was only written anew stands, and what was pruned after that comes back."""
    repo, _, made = thinned()
    repack(repo)
    new = find(repo, "run", 30)
    assert undelete(repo, "run", 30).save == undelete(repo, "run", made[2].save).save == new.save
    for which in (30, made[2].save, new.save):
        bury_all(repo, find(repo, "run", 30))
        assert [one.step for one in checkpoints(repo, "run")] == [40]
        assert undelete(repo, "run", which).save == new.save
        assert [one.save for one in checkpoints(repo, "run")][1] == new.save


def test_what_was_replaced_has_no_grace_and_what_was_pruned_keeps_its_own():
    """A sweep with a grace frees the old checkpoints at once, and the pack only when nobody can be undeleted to it."""
    repo, _, made = thinned(keep=3)
    assert repack(repo).bytes_waiting > 0
    day = 86_400.0
    done = sweep(repo, None, grace_s=day)
    assert {save for _, save in done.swept} == {one.save for one in made[1:]}
    assert [save for _, save in done.waiting] == [made[0].save]
    assert undelete(repo, "run", 10).save == made[0].save
    assert whole(repo) == [40, 30, 20, 10]

    repo, _, _ = thinned(keep=3)
    sweep(repo, None, grace_s=0)
    before = total(repo.store)
    done_now = repack(repo)
    assert done_now.bytes_waiting == 0
    sweep(repo, None, grace_s=day)
    assert total(repo.store) == before - done_now.bytes_freed


def test_copies_in_another_store():
    """What a copy brought along of a pack whose save nobody knows there is written anew, and the pack goes."""
    repo, _, made = thinned()
    other = world()
    copy(repo, made[2:], other)
    done = repack(other)
    assert [old.step for old, _ in done.rewritten] == [30, 40]
    for _ in range(2):
        sweep(other, None, grace_s=0)
    assert whole(other) == [40, 30]
    assert content(other, find(other, "run", 40)) == leaves(40)
    found = space(other, deep=True)
    assert (found.garbage, found.sparse, found.total) == (0, 0, found.stored)


def test_copies_in_the_same_store():
    """A copy under another name needs the old packs too: it is written anew with the run, named or not."""
    repo, _, made = thinned()
    copy(repo, made[3:], repo, run="twin")
    done = repack(repo, ["run"])
    assert sorted(old.run for old, _ in done.rewritten) == ["run", "run", "twin"]
    for _ in range(2):
        sweep(repo, None, grace_s=0)
    assert (whole(repo), whole(repo, "twin")) == ([40, 30], [40])
    assert content(repo, find(repo, "twin", 40)) == leaves(40)
    found = space(repo, deep=True)
    assert (found.garbage, found.sparse, found.total) == (0, 0, found.stored)
    both = digests(repo, *checkpoints(repo, "run"), *checkpoints(repo, "twin"))
    assert all(len(places) == 1 for places in both.values())


def test_archived_packs_are_left_alone():
    """What cannot be read at once is neither looked into nor rewritten."""
    repo, _, _ = thinned()

    class Cold(MemoryStore):
        """Whose packs all lie in an archive tier."""

        def get_range(self, key, start, into):
            raise Archived(f"{key} is archived", key=key)

        get, list, create = repo.store.get, repo.store.list, repo.store.create

    cold = reopened(repo, Cold())
    assert repack(cold).rewritten == ()
    assert space(cold, deep=True).dead == 0


def test_a_run_alone_is_swept_after_it():
    """`prune --run`: repack and sweep of one run free the pack that one of its own dead saves left."""
    repo, _, _ = thinned()
    sweep(repo, ["run"], grace_s=0)
    before = total(repo.store)
    done = repack(repo, ["run"])
    sweep(repo, ["run"], grace_s=0)
    assert total(repo.store) == before - done.bytes_freed
    assert whole(repo) == [40, 30]
