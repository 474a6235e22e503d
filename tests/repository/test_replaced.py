"""Checkpoints that were written anew: every way to name the old one leads to the one that has its place."""

from __future__ import annotations

import pytest

from everstep.errors import CheckpointPruned
from everstep.repository.catalogue import candidates, checkpoints, current, newest
from everstep.repository.checkpoint import Checkpoint
from everstep.repository.replaced import lost, standing, successor
from everstep.repository.repository import Repository
from everstep.repository.saves import begin_again, commit, write_index
from everstep.repository.settle import undecided
from everstep.repository.tags import find_tag, set_tag
from everstep.repository.tombs import bury
from everstep.store.count import Count
from everstep.store.memory import MemoryStore
from tests.repository.worlds import content, known_chunks, make_index, no_sleep, put, reopened, started

LEAVES = {"w": b"weights" * 100}


def again(repo: Repository, old: Checkpoint) -> Checkpoint:
    """The same checkpoint once more, committed."""
    save = begin_again(repo, old)
    write_index(repo, save, make_index(save, content(repo, old), known=known_chunks(repo, save.bases)))
    return commit(repo, save, timeout_s=0, sleep=no_sleep)


def replaced(repo: Repository, old: Checkpoint) -> Checkpoint:
    """As `again`, and the old one has its tomb."""
    new = again(repo, old)
    bury(repo, old.run, old.save, why="repacked", replaced_by=new.save)
    return new


def test_a_chain_leads_to_its_end():
    """Over several replacements; a save that was pruned alone stands for itself and is lost."""
    repo, attempt = started()
    first = put(repo, attempt, 1, LEAVES)
    second = replaced(repo, first)
    third = replaced(repo, second)
    assert successor(repo, "run", first.save) == second.save
    assert standing(repo, "run", first.save) == standing(repo, "run", third.save) == third.save
    assert current(repo, "run", first.save) == third
    assert not lost(repo, "run", first.save)
    bury(repo, "run", third.save, why="policy")
    assert standing(repo, "run", first.save) == third.save
    assert lost(repo, "run", first.save)
    assert current(repo, "run", first.save) is None


def test_a_list_that_is_older_than_the_replacement_is_followed():
    """The newest is found though the list does not have it yet, and a restore tries it before an older one."""
    store = MemoryStore()
    repo, attempt = started(store)
    older = put(repo, attempt, 1, LEAVES)
    old = put(repo, attempt, 2, LEAVES)
    made: list[Checkpoint] = []

    class Late(Count):
        """Replaces step 2 once the commit records are listed."""

        def list(self, prefix, after=""):
            found = list(super().list(prefix, after))
            if "/commits/" in prefix and not made:
                made.append(replaced(repo, old))
            return iter(found)

    assert newest(reopened(repo, Late(store)), "run").save == made[0].save
    made.clear()
    old = newest(repo, "run")
    tried = list(candidates(reopened(repo, Late(store), salt=2), "run"))
    assert tried.index(made[0].save) < tried.index(older.save)


def test_of_two_of_one_content_a_list_shows_one():
    """Between the commit record and the tomb: the new one, with the old one's tags."""
    repo, attempt = started()
    old = put(repo, attempt, 1, LEAVES)
    set_tag(repo, "best", old)
    new = again(repo, old)
    other = again(repo, old)
    (shown,) = checkpoints(repo, "run")
    assert shown.save in {new.save, other.save}
    assert shown.tags == ("best",)
    assert (shown.step, shown.attempt, shown.created) == (old.step, old.attempt, old.created)


def test_a_tag_on_what_was_replaced_is_one_on_what_has_its_place():
    """It is not taken back as from one that was pruned, and is when that one is pruned too."""
    repo, attempt = started()
    old = put(repo, attempt, 1, LEAVES)
    put(repo, attempt, 2, LEAVES)
    new = replaced(repo, old)
    assert set_tag(repo, "best", old).save == str(old.save)
    assert [one.tags for one in checkpoints(repo, "run")] == [(), ("best",)]
    bury(repo, "run", new.save, why="policy")
    with pytest.raises(CheckpointPruned):
        set_tag(repo, "late", old)
    assert find_tag(repo, "best").save == str(old.save)


def test_what_has_the_place_of_a_tagged_one_is_brought_back_when_a_prune_buries_it_meanwhile():
    """The pin is on it and not on the old one, which may be swept: the tag is given, and leads to what stands."""
    store = MemoryStore()
    repo, attempt = started(store)
    old = put(repo, attempt, 1, LEAVES)
    put(repo, attempt, 2, LEAVES)
    new = replaced(repo, old)
    pins = []

    class Buries(Count):
        """A prune that had chosen the new one buries it once the tag is there."""

        def create(self, key, body):
            super().create(key, body)
            if key.startswith("readers/"):
                pins.append(bytes(body))
            if key.startswith("tags/"):
                bury(repo, "run", new.save, why="policy")

    set_tag(reopened(repo, Buries(store)), "best", old)
    assert [str(new.save).encode() in pin for pin in pins] == [True]
    assert standing(repo, "run", old.save) == new.save
    assert not lost(repo, "run", old.save)


def test_what_does_not_stand_is_not_written_anew():
    """A checkpoint that was pruned meanwhile: nothing is left undecided."""
    repo, attempt = started()
    old = put(repo, attempt, 1, LEAVES)
    bury(repo, "run", old.save, why="policy")
    with pytest.raises(CheckpointPruned, match="meanwhile"):
        begin_again(repo, old)
    assert undecided(repo, "run") == []
