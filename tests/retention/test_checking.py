"""The look at the newest checkpoint before older ones are given up."""

import numpy as np
import pytest

import everstep as es
from everstep.errors import CorruptObject, IntegrityError, MissingObject
from everstep.repository.attempts import claim
from everstep.repository.opening import open_repository
from everstep.repository.reading import read_manifest
from everstep.retention import parse_keep
from everstep.retention.checking import check_whole
from everstep.retention.marking import PackLists
from everstep.retention.prune import plan_prune, prune
from everstep.store.count import Count
from everstep.store.memory import MemoryStore
from tests.repository.rank_worlds import put_ranks


def many(world):
    """A checkpoint of so many ranks, in a store that counts; the repository, and the keys by what they are."""
    store = Count(MemoryStore())
    repository = open_repository(store, create=True)
    attempt = claim(repository, "run", owner="test", world=world)
    made = put_ranks(repository, attempt, 7)
    keys = [found.key for found in store.list("")]
    store.clear()
    return repository, made, keys


def light(repository, made):
    """The light check, with nothing remembered."""
    check_whole(repository, made, "light", lists=PackLists(repository), listener=lambda _event: None)


def test_of_many_ranks_no_index_is_read():
    """The manifest is read; one list shows the indexes, and one for each folder the packs."""
    repository, made, _ = many(20)
    packs = read_manifest(repository, made).packs
    repository.store.clear()
    light(repository, made)
    assert repository.store.calls == {"get": 1, "list": 1 + len({key.rpartition("/")[0] for key in packs})}


@pytest.mark.parametrize("world", [3, 20])
@pytest.mark.parametrize("part", ["packs/", "rank-", "manifest."])
def test_what_is_gone_is_found(world, part):
    """Any pack, any index, the manifest: of few ranks and of many."""
    repository, made, keys = many(world)
    for key in [key for key in keys if part in key]:
        body = repository.store.get(key, 2**20)
        repository.store.delete(key)
        with pytest.raises(MissingObject, match="the newest checkpoint run@7 is damaged"):
            light(repository, made)
        repository.store.create(key, body)
    light(repository, made)


@pytest.mark.parametrize(("world", "part"), [(3, "packs/"), (3, "rank-"), (20, "rank-"), (20, "manifest.")])
def test_what_was_cut_is_found(world, part):
    """Of many ranks the packs' own lengths are not known without their indexes: that is the full check's."""
    repository, made, keys = many(world)
    key = next(key for key in keys if part in key)
    body = repository.store.get(key, 2**20)
    repository.store.delete(key)
    repository.store.create(key, body[:-1])
    with pytest.raises(IntegrityError, match="run@7"):
        light(repository, made)
    with pytest.raises(CorruptObject):
        check_whole(repository, made, "full", lists=PackLists(repository), listener=lambda _event: None)


def test_a_newest_that_is_pruned_while_it_is_looked_at_is_no_damage():
    """A prune that stood still: what was newest is old by now, and swept. It plans again, by what stands."""
    store = MemoryStore()
    with es.Checkpointer(store, "r") as ckpt:
        for step in (1, 2):
            ckpt.save(step, {"w": np.full(10, float(step))}).wait()

    class Late(PackLists):
        """Reads the manifest of the newest after two more saves and another prune."""

        moved = False

        def manifest_now(self, checkpoint):
            if not self.moved:
                self.moved = True
                with es.Checkpointer(store, "r") as ckpt:
                    for step in (3, 4):
                        ckpt.save(step, {"w": np.full(10, float(step))}).wait()
                repository = open_repository(store, create=False)
                other = plan_prune(repository, "r", parse_keep("last 1"), now=0)
                prune(repository, other, grace_s=0)
            return super().manifest_now(checkpoint)

    repository = open_repository(store, create=False)
    plan = plan_prune(repository, "r", parse_keep("last 1"), now=0, lists=Late(repository), measure=False)
    assert plan.victims == ()
    assert [one.step for one in plan.choice.kept] == [4]
