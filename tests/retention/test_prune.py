"""Pruning a run and sweeping a store: what goes, what stays, what is refused, how it is brought back, what it costs."""

import pytest

from everstep.errors import (
    CheckpointPruned,
    CorruptObject,
    IntegrityError,
    MissingObject,
    RunNotFound,
    UsageError,
)
from everstep.repository import keys as k
from everstep.repository.attempts import claim
from everstep.repository.catalogue import checkpoints, find
from everstep.repository.copying import copy
from everstep.repository.fork import fork
from everstep.repository.heirs import families, family
from everstep.repository.readers import reading
from everstep.repository.saves import abort, begin, write_index
from everstep.repository.tags import find_tag, set_tag
from everstep.repository.tombs import bury, graves, tombed
from everstep.repository.undelete import undelete
from everstep.repository.verified import mark_verified, verified
from everstep.repository.verify import verify
from everstep.retention.marking import PackLists
from everstep.retention.policy import parse_keep
from everstep.retention.prune import plan_prune, prune
from everstep.retention.sweep import sweep
from everstep.store.count import Count
from everstep.store.memory import MemoryStore
from tests.repository.worlds import content, keys, make_index, overwrite, plant, put, reopened, started, world

DAY = 86_400.0


class Hours:
    """The store's clock, which goes on by hand."""

    def __init__(self):
        self.now = 1.7e9

    def __call__(self):
        return self.now


def trained(store=None, *, steps=5, frozen=b"f" * 500):
    """A run of so many checkpoints, each with the one before as its base, and the same frozen part in all."""
    repo, attempt = started(store)
    made = []
    for step in range(1, steps + 1):
        made.append(put(repo, attempt, step, {"frozen": frozen, "w": bytes([step]) * 50}, bases=made[-1:]))
    return repo, attempt, made


def pruned(repo, keep, *, run="run", grace_s=0.0, **more):
    """Plan and prune."""
    plan = plan_prune(repo, run, parse_keep(keep), now=repo.clock(), **more)
    return plan, prune(repo, plan, grace_s=grace_s)


def steps(repo, run="run"):
    """The steps that are listed, newest first; each of them whole."""
    found = checkpoints(repo, run)
    for one in found:
        assert verify(repo, one) == []
    return [one.step for one in found]


def sizes(store):
    """Every object with its bytes."""
    return {one.key: one.size for one in store.list("")}


class TestPrune:
    def test_what_goes_is_gone_and_what_stays_is_whole(self):
        """The packs that live checkpoints share stay, whoever wrote them; commit records and tombs stay."""
        repo, _, made = trained()
        plan, done = pruned(repo, "last 2")
        assert [one.step for one in plan.victims] == [3, 2, 1]
        assert steps(repo) == [5, 4]
        assert {save.step for _, save in done.swept} == {1, 2, 3}
        assert len(keys(repo.store, "packs/")) == 3, (
            "two of their own, and the first one's with the frozen part"
        )
        assert len(keys(repo.store, "runs/run/commits/")) == 5
        assert graves(repo, "run").keys() == {one.save for one in made[:3]}
        assert keys(repo.store, f"runs/run/saves/{made[0].save}/") == []

    def test_what_is_freed_is_what_disappears(self):
        """Bytes and objects are those that the store has less, and the plan foretells packs, indexes and manifests."""
        repo, _, made = trained()
        before = sizes(repo.store)
        plan, done = pruned(repo, "last 2")
        after = sizes(repo.store)
        gone = before.keys() - after.keys()
        assert done.bytes == sum(before[key] for key in gone)
        assert done.objects == len(gone)
        plans = {k.plan_key("run", one.save) for one in made}
        assert plan.frees_bytes == done.bytes - sum(before[key] for key in gone & plans)

    def test_nothing_goes_where_everything_is_kept(self):
        """An empty policy keeps all."""
        repo, _, _ = trained()
        plan, done = pruned(repo, None)
        assert (plan.victims, done.objects, steps(repo)) == ((), 0, [5, 4, 3, 2, 1])

    def test_tagged_read_and_verified_ones_stay(self):
        """Besides the newest: what a tag names, what is being read, the newest that was verified."""
        repo, _, made = trained(steps=6)
        set_tag(repo, "best", made[0])
        mark_verified(repo, "run", made[1].save, by="verify")
        mark_verified(repo, "run", made[2].save, by="verify")
        with reading(repo, made[3], owner="somebody"):
            plan, _ = pruned(repo, "last 1")
        assert steps(repo) == [6, 4, 3, 1]
        reasons = {one.checkpoint.step: one.reasons for one in plan.choice.verdicts}
        assert reasons[4] == ("being read",)
        assert keys(repo.store, k.READERS) == []

    def test_one_that_is_named_goes_unless_it_must_stay(self):
        """A checkpoint can be dropped by name; the newest and tagged ones cannot."""
        repo, _, made = trained()
        set_tag(repo, "best", made[0])
        plan, _ = pruned(repo, "all", drop=(made[2],))
        assert (plan.victims, steps(repo)) == ((made[2],), [5, 4, 2, 1])
        for one, why in ((made[4], "newest"), (made[0], "tagged best")):
            with pytest.raises(UsageError, match=why):
                plan_prune(repo, "run", parse_keep("all"), now=0, drop=(one,))

    def test_an_unknown_run_is_told(self):
        """As everywhere."""
        repo, _, _ = trained()
        with pytest.raises(RunNotFound, match="no run 'other'"):
            plan_prune(repo, "other", parse_keep("last 1"), now=0)

    def test_a_stop_between_requests_leaves_the_rest_to_the_next(self):
        """Asked to stop at any moment, it stops; the next prune goes on."""
        for calls in range(14):
            repo, _, _ = trained()
            left = iter([False] * calls)
            plan = plan_prune(repo, "run", parse_keep("last 2"), now=0)
            prune(repo, plan, grace_s=0, stop=lambda left=left: next(left, True))
            assert steps(repo)[:2] == [5, 4]
            pruned(repo, "last 2")
            assert steps(repo) == [5, 4]
            assert len(keys(repo.store, "packs/")) == 3


class TestDamage:
    def test_nothing_is_pruned_when_the_newest_is_damaged(self):
        """Keep-last 1, and the newest lacks a pack, or has a short one: refused, naming it (fault 15)."""
        for damage in (
            lambda store, key: store.delete(key),
            lambda store, key: overwrite(store, key, b"short"),
        ):
            repo, _, made = trained()
            own = next(key for key in keys(repo.store, "packs/") if str(made[4].save) in key)
            damage(repo.store, own)
            before = keys(repo.store)
            with pytest.raises(IntegrityError, match="newest checkpoint run@5 is damaged"):
                pruned(repo, "last 1")
            assert keys(repo.store) == before

    def test_a_full_check_reads_every_byte_and_marks_what_is_whole(self):
        """A flipped bit, which a look at sizes does not see; and the mark that stays when nothing is wrong."""
        repo, _, made = trained()
        own = next(key for key in keys(repo.store, "packs/") if str(made[4].save) in key)
        good = repo.store.get(own, 10**9)
        overwrite(repo.store, own, good[:-1] + bytes([good[-1] ^ 1]))
        with pytest.raises(CorruptObject, match="run@5 is damaged"):
            pruned(repo, "last 1", check="full")
        assert verified(repo, "run") == frozenset()
        overwrite(repo.store, own, good)
        pruned(repo, "last 1", check="full")
        assert verified(repo, "run") == {made[4].save}

    def test_a_live_manifest_that_cannot_be_read_stops_the_sweep_before_it_deletes(self):
        """It is named; what its checkpoint needs is not known, so nothing goes; given up by name, it goes."""
        repo, _, made = trained()
        bury(repo, "run", made[0].save, why="a test")
        key = k.manifest_key("run", made[2].save, made[2].manifest)
        overwrite(repo.store, key, b"{}" * 300)
        before = keys(repo.store)
        for runs in (None, ("run",)):
            with pytest.raises(CorruptObject) as caught:
                sweep(repo, runs, grace_s=0)
            assert key in str(caught.value)
        assert keys(repo.store) == before
        repo.store.delete(key)
        with pytest.raises(MissingObject):
            sweep(repo, ("run",), grace_s=0)
        overwrite(repo.store, key, b"{}" * 300)
        bury(repo, "run", made[2].save, why="damaged")
        sweep(repo, ("run",), grace_s=0)
        assert steps(repo) == [5, 4, 2]
        assert not [name for name in keys(repo.store) if str(made[2].save) in name and "/saves/" in name]


class TestUndelete:
    def test_within_the_grace_a_checkpoint_comes_back_and_may_go_again(self):
        """By step or by save; as often as one likes; after the grace it is swept."""
        hours = Hours()
        repo, _, made = trained(MemoryStore(clock=hours))
        for which in (2, made[1].save, 2):
            _, done = pruned(repo, "last 2", grace_s=DAY)
            assert (done.objects, steps(repo)) == (0, [5, 4])
            assert undelete(repo, "run", which).save == made[1].save
            assert steps(repo) == [5, 4, 2]
            assert undelete(repo, "run", which).save == made[1].save, "it stands: nothing is done"
        hours.now += DAY - 60
        assert sweep(repo, None, grace_s=DAY).objects == 0
        hours.now += 61
        assert {save.step for _, save in sweep(repo, None, grace_s=DAY).swept} == {1, 3}
        assert steps(repo) == [5, 4, 2]
        with pytest.raises(CheckpointPruned, match="swept"):
            undelete(repo, "run", 1)

    def test_a_sweep_that_was_decided_cannot_be_undone(self):
        """As soon as it is decided, though nothing is deleted yet."""
        repo, _, made = trained()
        _, done = pruned(repo, "last 2", grace_s=0)
        assert done.swept
        with pytest.raises(CheckpointPruned):
            undelete(repo, "run", made[0].save)
        assert tombed(repo, "run", made[0].save)

    def test_a_tag_set_before_its_tomb_could_be_seen_brings_the_checkpoint_back(self):
        """A prune that chose before the tag was there, and died after its tomb: the next sweep mends it."""
        repo, _, made = trained()
        set_tag(repo, "best", made[0])
        bury(repo, "run", made[0].save, why="chosen before")
        done = sweep(repo, ("run",), grace_s=DAY)
        assert done.undeleted == (("run", made[0].save),)
        assert steps(repo) == [5, 4, 3, 2, 1]
        assert find_tag(repo, "best").save == str(made[0].save)

    def test_if_two_prunes_left_nothing_verified_the_newest_of_them_comes_back(self):
        """Each saw the other's checkpoint stand."""
        repo, _, made = trained()
        for one in made[:2]:
            mark_verified(repo, "run", one.save, by="verify")
            bury(repo, "run", one.save, why="a test")
        assert sweep(repo, ("run",), grace_s=0).undeleted == (("run", made[1].save),)
        assert steps(repo) == [5, 4, 3, 2]

    @pytest.mark.parametrize(("grace_s", "left"), [(0, 1), (1e9, 2)])
    def test_two_prunes_that_chose_by_different_marks_leave_one_that_was_verified(self, grace_s, left):
        """One has listed the marks before the other's newest verified got its own."""
        repo, _, made = trained()
        mark_verified(repo, "run", made[0].save, by="verify")
        early = plan_prune(repo, "run", parse_keep("last 1"), now=0)
        mark_verified(repo, "run", made[1].save, by="verify")
        late = plan_prune(repo, "run", parse_keep("last 1"), now=0)
        assert (made[1] in early.victims, made[0] in late.victims) == (True, True)
        prune(repo, early, grace_s=grace_s)
        prune(repo, late, grace_s=0)
        assert steps(repo) == [5, left]


class TestFamilies:
    def test_a_fork_keeps_what_it_needs_when_its_parent_is_pruned(self):
        """Forks of forks too; when they are pruned, a sweep of the whole store frees it."""
        repo, _, made = trained()
        child = fork(repo, made[0], "child")
        fork(repo, child, "grandchild")
        assert family(repo, "run") == ("run", "child", "grandchild")
        pruned(repo, "last 1")
        assert (steps(repo), steps(repo, "child"), steps(repo, "grandchild")) == ([5], [1], [1])
        for name in ("child", "grandchild"):
            put(repo, claim(repo, name, owner="test"), 2, {"w": b"other"})
            _, done = pruned(repo, "last 1", run=name)
        assert done.waiting, "the parent's packs: others may need them"
        assert sweep(repo, None, grace_s=0).waiting == ()
        assert len(keys(repo.store, "packs/")) == 4, "their own, the newest one's, and the frozen part"

    def test_a_copy_in_the_same_store_keeps_what_it_needs(self):
        """Whichever of the two is pruned; the copies' packs go with a sweep of the whole store."""
        repo, _, made = trained()
        copy(repo, made[:2], repo, run="copy")
        assert families(repo, ("copy",)).copied == {"copy": 1}
        pruned(repo, "last 1")
        assert steps(repo, "copy") == [2, 1]
        pruned(repo, "last 1", run="copy")
        assert (steps(repo, "copy"), steps(repo)) == ([2], [5])
        sweep(repo, None, grace_s=0)
        assert (steps(repo, "copy"), steps(repo)) == ([2], [5])
        assert len(keys(repo.store, "packs/")) == 3

    def test_a_mirror_goes_on_where_the_owner_of_a_pack_was_pruned(self):
        """Copies of a run go into another store one by one, where only the last two are kept."""
        repo, _, made = trained()
        there = world()
        for one in made:
            copy(repo, [one], there)
            pruned(there, "last 2")
            assert content(there, find(there, "run")) == content(repo, one)
        sweep(there, None, grace_s=0)
        assert steps(there) == [5, 4]
        assert len(keys(there.store, "packs/")) == 3

    def test_copies_that_need_one_save_and_do_not_know_of_each_other(self):
        """Two runs of a mirror need packs of a save that neither has; one gets it, and prunes it: the other is whole."""
        repo, _, made = trained()
        there = world()
        copy(repo, made[1:2], there, run="one")
        copy(repo, made[2:3], there, run="other")
        copy(repo, [made[0], *made[3:]], there, run="one")
        pruned(there, "last 1", run="one")
        assert (steps(there, "one"), steps(there, "other")) == ([5], [3])
        put(there, claim(there, "one", owner="test"), 9, {"w": b"alone"})
        pruned(there, "last 1", run="one")
        assert (steps(there, "one"), steps(there, "other")) == ([9], [3])
        assert sweep(there, None, grace_s=0).packs > 0
        assert (steps(there, "one"), steps(there, "other")) == ([9], [3])
        assert len(keys(there.store, "packs/")) == 3

    def test_packs_that_no_run_knows_go_and_no_copy_relies_on_them(self):
        """A copy brought a pack of a save that was not copied; both are pruned, the owner is copied later: refused."""
        repo, attempt, made = trained()
        last = put(repo, attempt, 6, {"w": b"nothing shared"})
        there = world()
        copy(repo, [made[4], last], there)
        owner = next(key for key in keys(there.store, "packs/") if str(made[0].save) in key)
        pruned(there, "last 1")
        assert owner in keys(there.store)
        sweep(there, None, grace_s=0)
        assert owner not in keys(there.store)
        with pytest.raises(CheckpointPruned):
            copy(repo, made[:1], there)
        assert steps(there) == [6]


class TestSweep:
    def test_what_was_given_up_goes_and_what_came_late_too(self):
        """An aborted save's pack and index; then a pack, an index and a plan that its writer sent too late."""
        repo, attempt, made = trained()
        save = begin(repo, attempt, 9, bases=made[-1:])
        write_index(repo, save, make_index(save, {"w": b"lost"}, store=repo.store))
        late = {key: repo.store.get(key, 10**9) for key in keys(repo.store) if str(save.id) in key}
        abort(repo, save, "a test")
        assert ("run", save.id) in sweep(repo, ("run",), grace_s=0).swept
        record = k.commit_key("run", save.id)
        assert [key for key in keys(repo.store) if str(save.id) in key] == [record]
        for key, body in late.items():
            plant(repo.store, key, body)
        sweep(repo, None, grace_s=0)
        assert [key for key in keys(repo.store) if str(save.id) in key] == [record]
        for key, body in late.items():
            if "/plans/" not in key:
                plant(repo.store, key, body)
        sweep(repo, None, grace_s=0)
        assert [key for key in keys(repo.store) if str(save.id) in key] == [record]

    def test_a_save_under_way_keeps_its_bases_and_is_given_up_after_a_week(self):
        """By the store's clock; one that has all its indexes is finished."""
        hours = Hours()
        repo, attempt, made = trained(MemoryStore(clock=hours))
        lost = begin(repo, attempt, 8, bases=made[:1])
        done = begin(repo, attempt, 9, bases=made[:1])
        write_index(repo, done, make_index(done, {"w": b"there"}, store=repo.store))
        bury(repo, "run", made[0].save, why="a test")
        hours.now += 6 * DAY
        put(repo, attempt, 10, {"w": b"now"})
        assert sweep(repo, None, grace_s=0).waiting == (("run", made[0].save),)
        hours.now += 2 * DAY
        put(repo, attempt, 11, {"w": b"later"})
        sweep(repo, None, grace_s=0)
        assert 9 in steps(repo)
        sweep(repo, None, grace_s=0)
        assert not [key for key in keys(repo.store) if str(lost.id) in key and "/commits/" not in key]

    def test_words_of_launches_that_are_over_and_answered_requests_go(self):
        """What the last launch said stays, and requests that wait."""
        hours = Hours()
        repo, _, _ = trained(MemoryStore(clock=hours))
        for launch in ("old", "new"):
            plant(repo.store, f"runs/run/exchange/{launch}/hello")
            hours.now += 2 * DAY
        claim(repo, "run", owner="again")
        hours.now += 2 * DAY
        plant(repo.store, "runs/run/exchange/newest/hello")
        done = sweep(repo, ("run",), grace_s=0)
        assert keys(repo.store, "runs/run/exchange/") == ["runs/run/exchange/newest/hello"]
        assert done.objects == 2

    def test_a_pin_that_a_crash_has_left_holds_for_a_week(self):
        """Then the sweep goes on."""
        hours = Hours()
        repo, _, made = trained(MemoryStore(clock=hours))
        pin = reading(repo, made[0], owner="gone")
        pin.__enter__()
        bury(repo, "run", made[0].save, why="a test")
        hours.now += 6.9 * DAY
        assert sweep(repo, None, grace_s=0).waiting == (("run", made[0].save),)
        hours.now += 0.2 * DAY
        assert sweep(repo, None, grace_s=0).swept == (("run", made[0].save),)
        assert keys(repo.store, k.READERS) == []


class TestCost:
    def test_a_prune_after_each_commit_is_some_twenty_small_requests(self):
        """Last 3 of many, one goes for one that comes: 21 requests with the light check, whatever the store holds.

        Six of a prune that has nothing to do.
        """
        repo, attempt, made = trained(steps=3)
        store = Count(repo.store)
        repo = reopened(repo, store)
        lists = PackLists(repo)
        counts = []
        for step in range(4, 40):
            made.append(put(repo, attempt, step, {"w": bytes([step]) * 9}, bases=made[-1:]))
            store.clear()
            plan = plan_prune(repo, "run", parse_keep("last 3"), now=0, lists=lists, measure=False)
            prune(repo, plan, grace_s=0, lists=lists)
            counts.append(sum(store.calls.values()))
        assert set(counts[3:]) == {21}
        assert store.bytes_out < 10_000
        for _ in range(2):
            store.clear()
            plan = plan_prune(repo, "run", parse_keep("last 3"), now=0, lists=lists, measure=False)
            prune(repo, plan, grace_s=0, lists=lists)
        assert sum(store.calls.values()) <= 6
