"""Others at work on the same run while a launch saves: newer launches, doubles, prunes, at every moment."""

import dataclasses
import subprocess
import sys
import textwrap

import numpy as np
import pytest

import everstep as es
from everstep.errors import DuplicateRank, Fenced
from everstep.format.digests import digest_of
from everstep.repository import keys as k
from everstep.repository.arrivals import arrivals
from everstep.repository.catalogue import find
from everstep.repository.opening import open_repository
from everstep.repository.tombs import bury
from everstep.repository.verify import verify
from everstep.retention.sweep import sweep
from everstep.store.count import Count
from everstep.store.fault import Fault, Injection, Kind, Scripted
from everstep.store.memory import MemoryStore
from tests.faults.pruning import Meanwhile
from tests.faults.sessions import blank, same, state_at


def quiet(_event: object) -> None:
    """Hears nothing."""


def calls_of_a_save() -> int:
    """How many store calls the second save of a launch makes."""
    store = Count(MemoryStore())
    with es.Checkpointer(store, "run", listener=quiet) as ckpt:
        ckpt.save(1, state_at(1)).wait()
        store.clear()
        ckpt.save(2, state_at(2)).wait()
    return sum(store.calls.values())


MOMENTS = range(1, calls_of_a_save() + 2)


def test_a_save_has_many_moments():
    """Plan, fence, bases, packs, index, ranks, manifest, record."""
    assert len(MOMENTS) > 8


@pytest.mark.parametrize("moment", MOMENTS)
def test_a_newer_launch_at_any_moment_of_a_save(moment):
    """The old save is Fenced, naming both, or the new launch has restored it: never both, never neither (fault 8)."""
    inner, restored = MemoryStore(), []

    def launch() -> None:
        with es.Checkpointer(inner, "run", listener=quiet) as ckpt:
            restored.append(ckpt.restore(blank()))
            ckpt.save(7, state_at(7)).wait()

    store = Meanwhile(inner, launch)
    with es.Checkpointer(store, "run", listener=quiet) as old:
        old.save(1, state_at(1)).wait()
        store.at = store.calls + moment
        pending = old.save(2, state_at(2))
        try:
            acknowledged = pending.wait().step == 2
        except Fenced as fenced:
            acknowledged = False
            assert "attempt 1 " in fenced.message  # noqa: PT017  # which of the two it is depends on the moment
            assert "attempt 2 " in fenced.message  # noqa: PT017
        assert bool(restored) is (moment < MOMENTS[-1])
        if not restored:
            store.at = 0
            launch()
        assert restored == [2 if acknowledged else 1]
        with pytest.raises(Fenced):
            old.save(3, state_at(3)).wait()
        assert [one.step for one in old.checkpoints()] == ([7, 2, 1] if acknowledged else [7, 1])


LAUNCH = """
    import sys, time, pathlib, numpy as np, everstep as es
    root, many = sys.argv[1], int(sys.argv[2])
    with es.Checkpointer(root, "run", listener=lambda event: None) as ckpt:
        assert ckpt.restore({"w": np.zeros(10)}) == 1
        while len(list(pathlib.Path(root, "runs/run/attempts").glob("*.json"))) < many + 1:
            time.sleep(0.01)
        try:
            print(ckpt.save(2, {"w": np.ones(10)}).wait().attempt)
        except es.EverstepError as error:
            print(error.code)
"""


def test_launches_that_claim_together(tmp_path):
    """Four real processes start at once: four attempt numbers, the highest saves, the others are Fenced (fault 10)."""
    script, root = tmp_path / "launch.py", tmp_path / "store"
    script.write_text(textwrap.dedent(LAUNCH))
    with es.Checkpointer(str(root), "run") as ckpt:
        ckpt.save(1, {"w": np.zeros(10)})
    words = [sys.executable, str(script), str(root), "4"]
    together = [subprocess.Popen(words, stdout=subprocess.PIPE, text=True) for _ in range(4)]
    told = sorted(process.communicate(timeout=100)[0].strip() for process in together)
    assert told == ["5", "E-FENCED", "E-FENCED", "E-FENCED"]


@pytest.mark.parametrize("another", [True, False])
def test_a_double_of_a_rank(another):
    """A second process writes the index of the same rank: other bytes are DuplicateRank with both digests (fault 9).

    The same bytes are one commit.
    """
    inner = MemoryStore()

    class Doubled(MemoryStore):
        def create(self, key, body):
            inner.create(key, body)
            if "/rank-" in key and armed:
                text = bytes(body)
                double = text.replace(b'"world":1', b'"world": 1') if another else text
                assert (double != text) is another
                digests.extend([digest_of(text), digest_of(double)])
                if another:
                    inner.create(key.replace(digest_of(text), digest_of(double)), double)
                else:
                    with pytest.raises(es.EverstepError):
                        inner.create(key, double)

        get, get_range, list, delete = inner.get, inner.get_range, inner.list, inner.delete

    armed: list[bool] = []
    digests: list[str] = []
    with es.Checkpointer(Doubled(), "run", listener=quiet) as ckpt:
        ckpt.save(1, state_at(1)).wait()
        armed.append(True)
        pending = ckpt.save(2, state_at(2))
        if another:
            with pytest.raises(DuplicateRank) as caught:
                pending.wait()
            assert all(digest in str(caught.value) for digest in digests)
        else:
            pending.wait()
        assert [one.step for one in ckpt.checkpoints()] == ([1] if another else [2, 1])


@pytest.mark.parametrize("moment", MOMENTS)
def test_the_base_is_pruned_at_any_moment_of_a_save(moment):
    """The checkpoint that referred to it, or did not any more, reads fully (fault 12)."""
    inner = MemoryStore()

    def prune() -> None:
        repository = open_repository(inner, create=False)
        bury(repository, "run", find(repository, "run", 1).save, why="a test")
        sweep(repository, ("run",), grace_s=0)

    store = Meanwhile(inner, prune)
    with es.Checkpointer(store, "run", listener=quiet) as ckpt:
        ckpt.save(0, blank()).wait()
        others = {listed.key for listed in inner.list("packs/")}
        ckpt.save(1, state_at(1)).wait()
        store.at = store.calls + moment
        ckpt.save(2, state_at(2)).wait()
        if moment == MOMENTS[-1]:
            prune()
    sweep(open_repository(inner, create=False), None, grace_s=0)
    left = {listed.key for listed in inner.list("packs/")} - others
    assert len(left) in {1, 2}, "what the save wrote itself, and what it found in its base"
    state = blank()
    with es.Checkpointer(inner, "run", on_corrupt="fail", listener=quiet) as ckpt:
        assert ckpt.restore(state) == 2
        assert [one.step for one in ckpt.checkpoints()] == [2, 0]
        repository = open_repository(inner, create=False)
        for one in ckpt.checkpoints():
            assert verify(repository, one) == []
    assert same(state, 2)


def test_ten_thousand_and_one_ranks_are_counted_once():
    """A list of many pages, one of them given twice, shows each rank once (fault 20)."""
    inner = MemoryStore()
    with es.Checkpointer(inner, "run", listener=quiet) as ckpt:
        save = ckpt.save(1, state_at(1)).wait().save
    repository = open_repository(inner, create=False)
    for rank in range(1, 10_001):
        inner.create(k.index_key("run", save, rank, digest_of(str(rank).encode())), b"{}")
    twice = Fault(inner, Scripted(Injection(kind=Kind.REPEATED, at=1, verb="list")))
    seen = arrivals(dataclasses.replace(repository, store=twice), "run", save, 10_001)
    assert twice.injected[Kind.REPEATED] == 1
    assert list(seen) == list(range(10_001))
