"""Tags: names and pins."""

from __future__ import annotations

import pytest

from everstep.errors import AlreadyExists, CheckpointNotFound, CheckpointPruned, InvalidName
from everstep.repository import keys as k
from everstep.repository.tags import find_tag, remove_tag, set_tag, tags
from everstep.store.memory import MemoryStore
from tests.repository.worlds import keys, plant, put, started


def test_a_tag_names_one_checkpoint():
    """It is created once; the same again is no error, another checkpoint is."""
    repo, attempt = started()
    first, second = put(repo, attempt, 1, {}), put(repo, attempt, 2, {})
    assert set_tag(repo, "best", first) == set_tag(repo, "best", first) == find_tag(repo, "best")
    with pytest.raises(AlreadyExists, match=str(first.save)):
        set_tag(repo, "best", second)
    assert find_tag(repo, "best").save == str(first.save)
    with pytest.raises(AlreadyExists):
        set_tag(repo, "BEST", second)


def test_a_tag_is_moved_by_force():
    """Only when the user says so."""
    repo, attempt = started()
    first, second = put(repo, attempt, 1, {}), put(repo, attempt, 2, {})
    set_tag(repo, "best", first)
    set_tag(repo, "best", second, force=True)
    assert [(tag.tag, tag.save) for tag in tags(repo)] == [("best", str(second.save))]


def test_of_two_that_move_a_tag_at_once_one_loses():
    """Between the delete and the create of one the other creates: the first is told."""

    class Racing(MemoryStore):
        rival = None

        def delete(self, key):
            super().delete(key)
            if self.rival:
                rival, self.rival = self.rival, None
                rival()

    store = Racing()
    repo, attempt = started(store)
    made = [put(repo, attempt, step, {}) for step in (1, 2, 3)]
    set_tag(repo, "best", made[0])
    store.rival = lambda: set_tag(repo, "best", made[1])
    with pytest.raises(AlreadyExists, match=str(made[1].save)):
        set_tag(repo, "best", made[2], force=True)
    assert find_tag(repo, "best").save == str(made[1].save)


def test_a_tag_is_removed_by_name():
    """Afterwards the name is free; to remove what is not there is an error."""
    repo, attempt = started()
    set_tag(repo, "best", put(repo, attempt, 1, {}))
    remove_tag(repo, "best")
    assert tags(repo) == []
    with pytest.raises(CheckpointNotFound, match="best"):
        remove_tag(repo, "best")


def test_a_pruned_checkpoint_cannot_be_tagged():
    """The tag is written before the look for the tomb, and taken back."""
    repo, attempt = started()
    made = put(repo, attempt, 1, {})
    plant(repo.store, k.tomb_key("run", made.save))
    with pytest.raises(CheckpointPruned):
        set_tag(repo, "best", made)
    assert keys(repo.store, k.TAGS) == []


@pytest.mark.parametrize("name", ["../x", "", "a/b", "con", "ä"])
def test_a_name_that_cannot_be_one_is_refused(name):
    """Tags are under the rules of runs' names."""
    repo, attempt = started()
    with pytest.raises(InvalidName):
        set_tag(repo, name, put(repo, attempt, 1, {}))
