"""Tombs and fates: a save is pruned, swept or undeleted, once for each tomb, whoever is at work and whatever gets lost."""

import itertools

import pytest

from everstep.errors import EverstepError, IntegrityError, StoreUnavailable
from everstep.repository import keys as k
from everstep.repository.catalogue import checkpoints, newest
from everstep.repository.fates import doom, raise_up
from everstep.repository.heirs import families, inherit, note_copied
from everstep.repository.tombs import bury, find_grave, graves, pruned, tomb, tombed
from everstep.repository.verified import mark_verified, verified
from everstep.store.fault import Fault, Injection, Kind, Scripted
from tests.repository.worlds import keys, plant, put, reopened, started


def two():
    """A run of two checkpoints."""
    repo, attempt = started()
    return repo, [put(repo, attempt, step, {"w": bytes([step])}) for step in (1, 2)]


def test_a_save_is_pruned_and_undeleted_as_often_as_one_likes():
    """Each tomb has its number, its fate and its announcement; none is ever removed."""
    repo, (one, other) = two()
    for number in range(12):
        assert not tombed(repo, "run", one.save)
        assert bury(repo, "run", one.save, why=f"for the {number}th time").number == number
        assert bury(repo, "run", one.save, why="again").number == number, "what stands is left as it is"
        assert tomb(repo, "run", one.save).why == f"for the {number}th time"
        assert pruned(repo, "run") == {str(one.save)}
        assert [found.step for found in checkpoints(repo, "run")] == [2]
        grave = graves(repo, "run")[one.save]
        assert (grave, grave.number) == (find_grave(repo, "run", one.save), number)
        assert raise_up(repo, grave)
        assert raise_up(repo, grave)
        assert not doom(repo, grave), "what was undeleted is never swept"
        assert newest(repo, "run") == other
    assert len(keys(repo.store, k.tombs_prefix("run"))) == 24


def test_the_first_decides_the_fate():
    """Once it is to be swept it cannot be undeleted."""
    repo, (one, _) = two()
    grave = bury(repo, "run", one.save, why="a test")
    assert doom(repo, grave)
    assert doom(repo, grave)
    assert not raise_up(repo, grave)
    assert tombed(repo, "run", one.save)


def test_an_undelete_that_died_is_brought_to_its_end_by_the_sweep():
    """Its fate was decided, and it was not announced: the sweep announces it."""
    repo, (one, _) = two()
    grave = bury(repo, "run", one.save, why="a test")
    dying = Fault(repo.store, Scripted(Injection(kind=Kind.BEFORE, at=2)))
    with pytest.raises(StoreUnavailable):
        raise_up(reopened(repo, dying), grave)
    assert tombed(repo, "run", one.save)
    assert not doom(repo, grave)
    assert not tombed(repo, "run", one.save)


@pytest.mark.parametrize("kind", [Kind.BEFORE, Kind.AFTER, Kind.LATE, Kind.TAKEN])
@pytest.mark.parametrize("number", [0, 1])
def test_what_cannot_be_proved_is_not_told(kind, number):
    """A tomb or a fate whose answer was lost is read back; if it is not there, the error is raised."""
    for act, at in itertools.product((bury, doom, raise_up), (1, 2, 3)):
        repo, (one, _) = two()
        if number:
            raise_up(repo, bury(repo, "run", one.save, why="before"))
        grave = None if act is bury else bury(repo, "run", one.save, why="a test")
        through = reopened(repo, Fault(repo.store, Scripted(Injection(kind=kind, at=at))))
        try:
            done = bury(through, "run", one.save, why="a test") if act is bury else act(through, grave)
        except EverstepError:
            continue
        if act is bury:
            assert (done.number, tombed(repo, "run", one.save)) == (number, True)
        else:
            assert done
            assert tombed(repo, "run", one.save) is (act is doom)


def test_a_fate_that_cannot_be_read_is_told():
    """Neither a sweep nor an undelete goes on."""
    repo, (one, _) = two()
    grave = bury(repo, "run", one.save, why="a test")
    plant(repo.store, k.sweep_key("run", one.save), b"{")
    for act in (doom, raise_up):
        with pytest.raises(IntegrityError):
            act(repo, grave)


def test_droppings_among_the_tombs_are_passed_over():
    """Names of another shape are nobody's tomb."""
    repo, (one, _) = two()
    for name in (".DS_Store", f"{one.save}.tmp", f"{one.save}.undeleted", "notes"):
        plant(repo.store, k.tombs_prefix("run") + name)
    assert graves(repo, "run") == {}
    assert not tombed(repo, "run", one.save)


def test_links_lead_to_all_heirs_and_say_what_is_copied():
    """Over heirs of heirs, in a circle too; a run is no heir of itself."""
    repo, _ = two()
    for of, heir in (("a", "b"), ("b", "c"), ("c", "a"), ("a", "a"), ("x", "y")):
        inherit(repo, of=of, heir=heir)
        inherit(repo, of=of, heir=heir)
    note_copied(repo, "b", 3)
    note_copied(repo, "b", 7)
    plant(repo.store, "runs/c/heirs/.DS_Store")
    found = families(repo, ("b",))
    assert (found.runs, found.copied) == (("b", "c", "a"), {"b": 7})
    assert families(repo, ("a", "x")).runs == ("a", "x", "b", "y", "c")


def test_a_mark_is_best_effort():
    """It is made once; who may not write goes without."""
    repo, (one, _) = two()
    for kind in (Kind.DENIED, Kind.FULL, Kind.BEFORE):
        failing = Fault(repo.store, Scripted(Injection(kind=kind, at=1)))
        assert not mark_verified(reopened(repo, failing), "run", one.save, by="verify")
    for _ in range(2):
        assert mark_verified(repo, "run", one.save, by="verify")
    assert verified(repo, "run") == {one.save}
