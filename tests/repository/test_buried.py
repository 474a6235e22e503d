"""What was pruned and can be brought back."""

import pytest

from everstep.errors import RunNotFound
from everstep.repository.buried import undeletable
from everstep.repository.fates import doom
from everstep.repository.tombs import bury, graves
from everstep.repository.undelete import undelete
from tests.repository.worlds import put, started, world


def test_pruned_checkpoints_are_listed_newest_first_with_their_reason():
    """Since when by the store's clock; those that stand are left out."""
    repo, attempt = started()
    made = [put(repo, attempt, step, {}) for step in (1, 2, 3)]
    for one in made[:2]:
        bury(repo, one.run, one.save, why="last 1")
    found = undeletable(repo, attempt.run)
    assert [one.checkpoint.step for one in found] == [2, 1]
    assert {one.why for one in found} == {"last 1"}
    assert all(one.since > 0 for one in found)


def test_what_is_being_swept_or_has_come_back_is_left_out():
    """Its bytes may be gone; or it is a checkpoint."""
    repo, attempt = started()
    made = [put(repo, attempt, step, {}) for step in (1, 2, 3)]
    for one in made:
        bury(repo, one.run, one.save, why="x")
    assert doom(repo, graves(repo, attempt.run)[made[0].save])
    undelete(repo, attempt.run, 2)
    assert [one.checkpoint.step for one in undeletable(repo, attempt.run)] == [3]
    bury(repo, attempt.run, made[1].save, why="again")
    assert [one.why for one in undeletable(repo, attempt.run)] == ["x", "again"]


def test_what_was_rewritten_is_left_out():
    """Another checkpoint has its place and its content."""
    repo, attempt = started()
    old, new = put(repo, attempt, 1, {}), put(repo, attempt, 1, {})
    bury(repo, old.run, old.save, why="repacked", replaced_by=new.save)
    assert undeletable(repo, attempt.run) == []


def test_a_tomb_that_cannot_be_read_still_lists_its_checkpoint():
    """It can be brought back all the same."""
    repo, attempt = started()
    made = put(repo, attempt, 1, {})
    bury(repo, made.run, made.save, why="x")
    key = next(found.key for found in repo.store.list(f"runs/{made.run}/tombs/"))
    repo.store.delete(key)
    repo.store.create(key, b"not a record")
    (found,) = undeletable(repo, made.run)
    assert "cannot be read" in found.why


def test_an_unknown_run_is_named():
    """An empty list would look as if nothing was pruned."""
    with pytest.raises(RunNotFound):
        undeletable(world(), "nobody")
