"""Reading everything, and naming what is damaged."""

from __future__ import annotations

import pytest

from everstep.errors import CheckpointPruned, StoreUnavailable
from everstep.events import Transferred
from everstep.format.packs import PAGE
from everstep.repository import keys as k
from everstep.repository.attempts import claim
from everstep.repository.reading import read_manifest
from everstep.repository.saves import begin, commit, write_index
from everstep.repository.verify import verify
from everstep.store.count import Count
from everstep.store.fault import Fault, Injection, Kind, Scripted
from everstep.store.memory import MemoryStore
from tests.repository.worlds import keys, last, make_index, no_sleep, overwrite, plant, put, reopened, started

LEAVES = {"w": b"weights" * 100, "b": b"bias" * 10, "again": b"weights" * 100, "empty": b""}


def damaged(repo, found):
    """The kinds of damage and the leaves, each once."""
    return sorted({(one.what, one.path) for one in verify(repo, found)})


def test_a_sound_checkpoint_has_no_damage():
    """Every byte of its packs is read once, though two leaves share a chunk, and progress is told."""
    store = Count(MemoryStore())
    repo, attempt = started(store)
    made = put(repo, attempt, 1, {"w": b"x" * 10**6, "v": b"x" * 10**6, "b": b"y" * 10**6})
    store.clear()
    heard = []
    assert verify(repo, made, listener=heard.append) == []
    assert sum(key.startswith("packs/") for verb, key in store.log if verb == "get_range") == 2
    assert store.bytes_out < 2.1 * 10**6
    assert heard[-1] == Transferred(what="verify run@1", done=2 * 10**6, total=2 * 10**6)


@pytest.mark.parametrize("leaf", ["w", "b"])
def test_fault_22_a_flipped_bit_names_leaf_rank_key_and_offset(leaf):
    """Only the leaves that need the chunk are listed."""
    repo, attempt = started()
    made = put(repo, attempt, 1, LEAVES)
    pack = read_manifest(repo, made).packs[0]
    body = bytearray(repo.store.get(pack, 10**9))
    at = body.index(LEAVES[leaf])
    body[at + 3] ^= 4
    overwrite(repo.store, pack, body)
    found = verify(repo, made)
    wanted = {"w", "again"} if leaf == "w" else {"b"}
    assert {one.path for one in found} == wanted
    first = next(one for one in found if one.path == leaf)
    assert (first.what, first.rank, first.key, first.offset) == ("corrupt", 0, pack, at)
    assert first.length == len(LEAVES[leaf])


def test_fault_4_a_pack_cut_in_half():
    """What is still whole is not listed."""
    repo, attempt = started()
    made = put(repo, attempt, 1, LEAVES)
    pack = read_manifest(repo, made).packs[0]
    body = repo.store.get(pack, 10**9)
    overwrite(repo.store, pack, body[: PAGE + len(LEAVES["w"]) + 5])
    assert damaged(repo, made) == [("header", ""), ("short", "b")]


def test_fault_23_a_missing_pack_lists_every_leaf():
    """Each leaf that needs it, of each rank."""
    repo, attempt = started(ranks=2)
    made = put(repo, attempt, 1, LEAVES)
    repo.store.delete(k.pack_key(made.save, 1, 0))
    found = verify(repo, made)
    assert [(one.what, one.path, one.rank) for one in found] == [
        ("missing", "again", 1),
        ("missing", "w", 1),
        ("missing", "b", 1),
    ]


def test_every_byte_of_a_packs_header_is_covered():
    """The name, the types and the padding too: a damaged header misleads other readers."""
    repo, attempt = started()
    made = put(repo, attempt, 1, {"w": b"weights"})
    pack = read_manifest(repo, made).packs[0]
    sound = repo.store.get(pack, 10**9)
    for at in [*range(220), PAGE - 1]:
        body = bytearray(sound)
        body[at] ^= 1
        overwrite(repo.store, pack, body)
        found = verify(repo, made)
        assert [(one.what, one.key) for one in found] == [("header", pack)], at


def test_a_damaged_index_lists_the_leaves_that_nothing_else_describes():
    """The index by key and rank, and each tensor that cannot be found without it."""
    repo, attempt = started()
    made = put(repo, attempt, 1, LEAVES)
    key = next(key for key in keys(repo.store, k.save_prefix("run", made.save)) if "/rank-" in key)
    body = bytearray(repo.store.get(key, 10**6))
    body[100] ^= 1
    overwrite(repo.store, key, body)
    assert damaged(repo, made) == [
        ("incomplete", "again"),
        ("incomplete", "b"),
        ("incomplete", "w"),
        ("index", ""),
    ]
    assert next(one for one in verify(repo, made) if one.what == "index").key == key


def test_a_leaf_that_another_rank_has_whole_survives_a_lost_index():
    """Replicas are described by more than one index."""
    repo, attempt = started(ranks=2)
    made = put(repo, attempt, 1, LEAVES)
    key = next(key for key in keys(repo.store, k.save_prefix("run", made.save)) if "/rank-0000001" in key)
    repo.store.delete(key)
    assert [(one.what, one.rank, one.key) for one in verify(repo, made)] == [("index", 1, key)]


def test_a_damaged_manifest_is_named():
    """Without it nothing can be said about leaves."""
    repo, attempt = started()
    made = put(repo, attempt, 1, LEAVES)
    key = k.manifest_key("run", made.save, made.manifest)
    overwrite(repo.store, key, b"damaged")
    assert [(one.what, one.key) for one in verify(repo, made)] == [("manifest", key)]
    repo.store.delete(key)
    assert [(one.what, one.key) for one in verify(repo, made)] == [("manifest", key)]


def test_a_checkpoint_that_is_pruned_meanwhile_is_not_damaged():
    """Its tomb says why its objects are gone."""
    repo, attempt = started()
    made = put(repo, attempt, 1, LEAVES)
    plant(repo.store, k.tomb_key("run", made.save))
    repo.store.delete(k.manifest_key("run", made.save, made.manifest))
    with pytest.raises(CheckpointPruned):
        verify(repo, made)


def test_a_short_answer_in_a_wide_range_is_narrowed_down():
    """When the wide read fails and the chunks can be read, nothing is damaged."""
    repo, attempt = started()
    made = put(repo, attempt, 1, LEAVES)
    store = Fault(repo.store, Scripted(Injection(kind=Kind.SHORT, at=2, verb="get_range")))
    assert verify(reopened(repo, store), made, workers=1) == []
    assert store.injected[Kind.SHORT] == 1


def test_a_store_that_cannot_be_reached_says_nothing_about_bytes():
    """An error is no finding."""
    repo, attempt = started()
    made = put(repo, attempt, 1, LEAVES)
    store = Fault(repo.store, Scripted(Injection(kind=Kind.UNAVAILABLE, at=1, verb="get_range")))
    with pytest.raises(StoreUnavailable):
        verify(reopened(repo, store), made)


def test_packs_of_older_saves_are_read_too():
    """A chunk that was found in a base is verified where it is."""
    repo, attempt = started()
    first = put(repo, attempt, 1, {"w": b"x" * 100, "b": b"y"})
    second = put(repo, attempt, 2, {"w": b"x" * 100, "b": b"z"}, bases=[first])
    pack = read_manifest(repo, first).packs[0]
    body = bytearray(repo.store.get(pack, 10**6))
    body[PAGE] ^= 1
    overwrite(repo.store, pack, body)
    assert damaged(repo, second) == [("corrupt", "w")]


def test_an_index_may_hold_no_tensors():
    """A state of plain values only has no packs, and nothing to read."""
    repo, attempt = started()
    save = begin(repo, claim(repo, "run", owner="next"), 3)
    write_index(repo, save, make_index(save, {}))
    commit(repo, save, timeout_s=0, sleep=no_sleep)
    assert verify(repo, last(repo)) == []
    assert attempt.number == 1
