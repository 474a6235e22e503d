"""Checkpoints into another store."""

from __future__ import annotations

import pytest

from everstep.errors import (
    CheckpointPruned,
    CorruptChunk,
    CorruptObject,
    IntegrityError,
    InvalidManifest,
    MissingObject,
    SaveAborted,
    UsageError,
)
from everstep.events import Transferred
from everstep.format.packs import PAGE, PackEntry, write_header
from everstep.repository import keys as k
from everstep.repository.attempts import claim
from everstep.repository.catalogue import checkpoints, find_run, newest
from everstep.repository.copying import copy
from everstep.repository.fork import fork
from everstep.repository.plans import read_plan
from everstep.repository.reading import read_manifest
from everstep.repository.verify import verify
from everstep.store.count import Count
from everstep.store.memory import MemoryStore
from tests.repository.worlds import content, keys, last, overwrite, plant, put, started, world

LEAVES = {"w": b"weights" * 100, "b": b"bias" * 10}


def three(ranks=1):
    """A run of three checkpoints that share most of their bytes, oldest first."""
    repo, attempt = started(ranks=ranks)
    made = []
    for step in (1, 2, 3):
        made.append(
            put(repo, attempt, step, LEAVES | {"b": bytes([step]) * 9}, bases=made[-1:], metrics={"at": step})
        )
    return repo, made


def test_a_run_is_copied_whole():
    """The same checkpoints under the same keys, byte for byte, verified; the source is not written.

    Beside them it says that they are copies.
    """
    repo, made = three(ranks=2)
    before = keys(repo.store)
    there = world()
    heard = []
    assert copy(repo, made, there, listener=heard.append) == tuple(made)
    assert checkpoints(there, "run") == checkpoints(repo, "run")
    assert keys(repo.store) == before
    for one in made:
        assert verify(there, one) == []
        assert content(there, one) == content(repo, one)
    for key in keys(there.store):
        if not key.startswith((k.STORE_KEY, "runs/run/commits/", "runs/run/plans/", "runs/run/heirs/")):
            assert there.store.get(key, 10**9) == repo.store.get(key, 10**9)
    assert isinstance(heard[-1], Transferred)


def test_one_checkpoint_brings_the_packs_that_it_shares():
    """The older saves that own them are not there as checkpoints."""
    repo, made = three()
    there = world()
    copy(repo, made[2:], there)
    assert [one.step for one in checkpoints(there, "run")] == [3]
    assert content(there, last(there)) == content(repo, made[2])
    assert set(keys(there.store, "packs/")) == set(read_manifest(repo, made[2]).packs)
    owners = {base.save for base in read_plan(there, "run", made[2].save).bases}
    assert owners == {str(made[0].save)}


def test_a_second_copy_copies_nothing():
    """What is there is left as it is."""
    repo, made = three()
    store = Count(MemoryStore())
    there = world(store)
    copy(repo, made, there)
    store.clear()
    assert copy(repo, made, there) == tuple(made)
    assert store.bytes_in == 0
    assert not [key for _, key in store.log if key.startswith("packs/")]


def test_a_copy_goes_on_where_another_stopped():
    """A pack that is there is verified and not written again."""
    repo, made = three()
    there = world(Count(MemoryStore()))
    pack = read_manifest(repo, made[0]).packs[0]
    plant(there.store, pack, repo.store.get(pack, 10**9))
    copy(repo, made, there)
    assert [(verb, key) for verb, key in there.store.log if key == pack and verb == "create"] == [
        ("create", pack)
    ]
    assert verify(there, made[2]) == []


def test_a_damaged_pack_in_the_destination_is_not_trusted():
    """Neither another length nor other bytes; nothing is committed."""
    repo, made = three()
    pack = read_manifest(repo, made[0]).packs[0]
    body = bytearray(repo.store.get(pack, 10**9))
    body[PAGE] ^= 1
    for wrong in (bytes(body), bytes(body[:-1]), b""):
        there = world()
        plant(there.store, pack, wrong)
        with pytest.raises(IntegrityError, match=pack):
            copy(repo, made, there)
        assert newest(there, "run") is None


def test_another_pack_under_the_same_key_is_not_trusted():
    """Though it is whole and holds the chunks where they should be: it has another length."""
    repo, made = three()
    pack = read_manifest(repo, made[0]).packs[0]
    header = bytearray(PAGE)
    data = repo.store.get(pack, 10**9)[PAGE:] + b"more"
    write_header([PackEntry("other", "U8", (len(data),), len(data))], memoryview(header))
    there = world()
    plant(there.store, pack, bytes(header) + data)
    with pytest.raises(CorruptObject, match=pack):
        copy(repo, made, there)


def test_damage_in_the_source_stops_the_copy():
    """The leaf, the key and the offset are named; the destination has no such checkpoint."""
    repo, made = three()
    pack = read_manifest(repo, made[0]).packs[0]
    sound = repo.store.get(pack, 10**9)
    body = bytearray(sound)
    body[PAGE] ^= 1
    overwrite(repo.store, pack, body)
    there = world()
    with pytest.raises(CorruptChunk, match="'w'") as caught:
        copy(repo, made, there)
    assert (caught.value.fields["key"], caught.value.fields["offset"]) == (pack, PAGE)
    body = bytearray(sound)
    body[100] ^= 1
    overwrite(repo.store, pack, body)
    with pytest.raises(InvalidManifest, match=pack):
        copy(repo, made, there)
    repo.store.delete(pack)
    with pytest.raises(MissingObject, match=pack):
        copy(repo, made, there)
    assert newest(there, "run") is None


def test_a_launch_in_the_destination_gets_a_higher_number():
    """The attempts came along, so that what is saved there is newer than what was copied."""
    repo, made = three()
    there = world()
    copy(repo, made, there)
    launch = claim(there, "run", owner="there")
    assert launch.number == 2
    assert put(there, launch, 1, LEAVES, bases=[last(there)]) == last(there)


def test_later_checkpoints_of_the_run_can_follow():
    """A copy of a run that went on adds what is new."""
    repo, made = three()
    there = world()
    copy(repo, made, there)
    more = put(repo, claim(repo, "run", owner="next"), 4, LEAVES, bases=made[2:])
    copy(repo, checkpoints(repo, "run"), there)
    assert last(there) == more


def test_another_run_of_this_name_is_not_mixed_with_it():
    """Neither a run that was begun elsewhere, nor one that went another way since it was copied."""
    repo, made = three()
    there = world()
    there = type(there)(store=there.store, record=there.record, clock=lambda: 5.0, entropy=there.entropy)
    claim(there, "run", owner="stranger")
    with pytest.raises(UsageError, match="another history"):
        copy(repo, made, there)
    twin = world()
    copy(repo, made, twin)
    claim(twin, "run", owner="twin")
    more = put(repo, claim(repo, "run", owner="next"), 4, LEAVES)
    with pytest.raises(UsageError, match="another attempt 2"):
        copy(repo, [more], twin)


def test_a_copy_under_another_name():
    """Into another store or the same one; the packs keep their keys, so in the same store none is written."""
    repo, made = three(ranks=2)
    for there in (world(), repo):
        before = set(keys(there.store, "packs/"))
        copied = copy(repo, made, there, run="twin")
        assert [one.step for one in copied] == [1, 2, 3]
        assert find_run(there, "twin").created == find_run(repo, "run").created
        for one, other in zip(copied, made, strict=True):
            assert (one.save, one.metrics) == (other.save, other.metrics)
            assert verify(there, one) == []
            assert content(there, one) == content(repo, other)
        assert before in (set(), set(keys(there.store, "packs/")))
    with pytest.raises(UsageError, match="already"):
        copy(repo, made, repo)


def test_a_fork_is_copied_without_its_parent():
    """Its lineage is kept by name, and its packs come along."""
    repo, made = three()
    there = world()
    forked = fork(repo, made[1], "child")
    copied = copy(repo, [forked], there)
    assert copied[0].forked_from == made[1].parent
    assert find_run(there, "child").parent == made[1].parent
    assert content(there, copied[0]) == content(repo, made[1])


def test_a_save_that_the_destination_gave_up_cannot_come():
    """A launch there that claims while the copy is under way decides the copy's save: the copy is told."""
    repo, made = three()

    class Claiming(MemoryStore):
        armed = False

        def create(self, key, body):
            super().create(key, body)
            if self.armed and key.startswith("packs/"):
                self.armed = False
                claim(there, "run", owner="impatient")

    there = world(Claiming())
    there.store.armed = True
    with pytest.raises(SaveAborted, match="attempt 2 took over"):
        copy(repo, made, there)
    assert newest(there, "run") is None


def test_a_save_that_was_pruned_from_the_destination_cannot_come_back():
    """Names are never used again: a sweep there may be under way."""
    repo, made = three()
    there = world()
    copy(repo, made, there)
    plant(there.store, k.tomb_key("run", made[2].save), b"")
    with pytest.raises(CheckpointPruned, match="cannot come back"):
        copy(repo, made[2:], there)


def test_packs_of_a_save_that_is_dead_in_the_destination_are_not_relied_on():
    """They may be swept at any time, although they are there now: a copy never goes by presence alone."""
    repo, made = three()
    there = world()
    copy(repo, made[:1], there)
    plant(there.store, k.tomb_key("run", made[0].save), b"")
    with pytest.raises(CheckpointPruned, match="packs"):
        copy(repo, made[2:], there)
    assert newest(there, "run") is None


def test_the_pin_is_there_before_the_dead_are_looked_for():
    """The plan in the destination comes before the look, and the packs come after both."""
    repo, made = three()
    store = Count(MemoryStore())
    there = world(store)
    copy(repo, made[:1], there)
    store.clear()
    copy(repo, made[2:], there)
    order = [key for _, key in store.log]
    plan = order.index(k.plan_key("run", made[2].save))
    plan = order.index(k.plan_key("run", made[2].save), plan + 1)
    tomb = order.index(k.tomb_key("run", made[0].save), plan)
    pack = next(i for i, key in enumerate(order) if key.startswith("packs/"))
    commit = order.index(k.commit_key("run", made[2].save), plan)
    assert plan < tomb < pack < commit


def test_checkpoints_of_two_runs_are_not_copied_together():
    """One run at a time, so that its lineage can be checked."""
    repo, made = three()
    with pytest.raises(UsageError):
        copy(repo, [made[0], fork(repo, made[1], "child")], world())
    assert copy(repo, [], world()) == ()
