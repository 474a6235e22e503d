"""Ranks tell, hear and settle; whoever is missing, fails or is slow is named on all of them."""

import threading
import time

import pytest

from everstep.errors import (
    CorruptObject,
    EverstepError,
    Fenced,
    InvalidName,
    RanksMissing,
    StoreUnavailable,
    UsageError,
)
from everstep.ranks import Identity, Ranks
from everstep.ranks.local_exchange import LocalExchange
from everstep.ranks.words import decode
from tests.ranks.threads import all_ranks, rank_of


def joined(words):
    """A verdict that shows every word in the order of ranks."""
    return b",".join(words[rank] for rank in sorted(words))


def settle(ranks, topic="save/1", word=None, decide=joined, timeout_s=1200):
    """Say a word, by default the own number, and get the verdict."""
    return ranks.settle(topic, b"%d" % ranks.rank if word is None else word, decide, timeout_s=timeout_s)


def test_all_ranks_get_the_verdict_that_rank_0_makes_of_all_words():
    """Of every rank's word, by its number; deciding happens once."""
    decided = []

    def decide(words):
        decided.append(dict(words))
        return joined(words)

    assert all_ranks(4, lambda ranks: settle(ranks, decide=decide)) == dict.fromkeys(range(4), b"0,1,2,3")
    assert decided == [{0: b"0", 1: b"1", 2: b"2", 3: b"3"}]


def test_alone_a_rank_decides_at_once():
    """No exchange, no waiting: sleeping would fail."""
    ranks = Ranks(LocalExchange(), Identity(rank=0, world=1), sleep=pytest.fail)
    assert settle(ranks) == b"0"
    assert ranks.local_ranks == (0,)
    with pytest.raises(Fenced, match="gone"):
        settle(ranks, word=Fenced("gone"))
    ranks.close()


def test_a_topic_may_come_again_and_long_words_arrive_whole():
    """Each settle has its own words, though the name is the same; a word may have some MiB."""

    def does(ranks):
        return [
            settle(ranks, word=b"%d-%d" % (ranks.rank, turn) + b"." * (1_300_000 if turn == 1 else 0))
            for turn in range(3)
        ]

    for results in all_ranks(3, does).values():
        assert [verdict.replace(b".", b"") for verdict in results] == [
            b"0-0,1-0,2-0", b"0-1,1-1,2-1", b"0-2,1-2,2-2",
        ]  # fmt: skip
        assert len(results[1]) == 3 * 1_300_003 + 2


def test_what_is_told_is_heard_by_all_who_ask():
    """From rank 0, or from any other; before or after it is asked for."""

    def does(ranks):
        if ranks.rank == 1:
            ranks.tell("node/1", b"from 1")
        if ranks.rank == 0:
            ranks.tell("begin/7", b"from 0")
        return ranks.hear("begin/7", timeout_s=1200), ranks.hear("node/1", timeout_s=1200, who=1)

    assert all_ranks(3, does) == dict.fromkeys(range(3), (b"from 0", b"from 1"))


def test_families_are_used_by_threads_of_one_rank_at_once():
    """A save in the background and a question in the foreground do not wait for each other."""

    def does(ranks):
        results = {}

        def background():
            results["save"] = [settle(ranks, "save/1") for _ in range(5)]

        thread = threading.Thread(target=background)
        thread.start()
        results["read"] = [settle(ranks, "read/1", word=b"r%d" % ranks.rank) for _ in range(5)]
        thread.join()
        return results

    expected = {"save": [b"0,1,2"] * 5, "read": [b"r0,r1,r2"] * 5}
    assert all_ranks(3, does) == dict.fromkeys(range(3), expected)


def test_missing_ranks_are_named_on_all_others():
    """By rank 0, which tells it: the same error everywhere."""

    def does(ranks):
        ranks.meet(1200)
        return None if ranks.rank in {2, 3} else settle(ranks, timeout_s=20)

    results = all_ranks(5, does)
    for rank in (0, 1, 4):
        error = results[rank]
        assert isinstance(error, RanksMissing)
        assert error.message == "ranks 2 and 3 did not come to 'save/1' within 20 s"
        assert (error.fields["missing"], error.fields["topic"]) == ((2, 3), "save/1")


def test_ranks_that_never_start_are_named():
    """At the first exchange, on all that did start."""
    results = all_ranks(4, lambda ranks: settle(ranks, timeout_s=20), without=[1, 3])
    assert [results[rank].fields["missing"] for rank in (0, 2)] == [(1, 3)] * 2


@pytest.mark.parametrize("told", ["nothing", "its word"])
def test_a_dead_rank_0_is_named_by_the_others(told):
    """Whether it died before it came, or after, before it gave the verdict."""

    def does(ranks):
        ranks.meet(1200)
        if ranks.rank == 0:
            if told == "its word":
                ranks.put("save/0/word/0", b"vsave/1\0")
            return None
        return settle(ranks, timeout_s=20)

    results = all_ranks(3, does)
    assert [results[rank].fields["missing"] for rank in (1, 2)] == [(0,)] * 2


def test_a_rank_0_that_comes_late_is_waited_for():
    """It has its own deadline from when it comes, and what it says counts for all."""
    exchange = LocalExchange()
    late, results = threading.Event(), {}

    class Clock:
        """Rank 1's: at 22 s, beyond the deadline, rank 0 starts; it stands at 24 s until rank 0 has come, then at 30 s."""

        seconds = 0.0
        running = False

        def sleep(self, seconds):
            if not self.running:
                time.sleep(0.001)
                return
            self.seconds += seconds
            if self.seconds > 22:
                late.set()
            for instant, key in ((24, "word/0"), (30, "verdict")):
                while self.seconds > instant and f"save/0/{key}" not in " ".join(list(exchange._values)):
                    time.sleep(0.001)

    def run(rank):
        clock = Clock()
        more = {"sleep": clock.sleep, "now": lambda: clock.seconds} if rank == 1 else {}
        ranks = rank_of(exchange, rank, 3, **more)
        met.wait()
        ranks.meet(1200)
        clock.running = True
        if rank == 0:
            late.wait()
        try:
            results[rank] = rank == 2 or settle(ranks, timeout_s=20)
        except EverstepError as error:
            results[rank] = error

    met = threading.Barrier(3)
    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [results[rank].fields["missing"] for rank in (0, 1)] == [(2,)] * 2


def test_what_decide_raises_is_raised_on_all():
    """As its own class with its fields; on rank 0 it is the error itself."""
    fenced = Fenced("attempt 3 owns the run", hint="stop", attempt=3, ranks=(1, 2))

    def decide(words):
        raise fenced

    results = all_ranks(3, lambda ranks: settle(ranks, decide=decide))
    assert results[0] is fenced
    for rank in (1, 2):
        assert type(results[rank]) is Fenced
        assert (results[rank].message, results[rank].hint) == ("attempt 3 owns the run", "stop")
        assert results[rank].fields == {"attempt": 3, "ranks": (1, 2)}


def test_an_error_that_is_not_ours_keeps_its_name_and_text():
    """A bug in decide is told, too, instead of leaving the others waiting."""
    results = all_ranks(2, lambda ranks: settle(ranks, decide=lambda words: words[7]))
    assert type(results[0]) is KeyError
    assert type(results[1]) is EverstepError
    assert "KeyError: 7" in results[1].message


@pytest.mark.parametrize("failing", [0, 1, 3])
def test_a_rank_that_failed_is_named_on_all_others_at_once(failing):
    """They do not wait for one that is slow or missing: here rank 2 never comes."""
    error = StoreUnavailable("no answer", hint="wait", key="k")

    def does(ranks):
        ranks.meet(1200)
        if ranks.rank == 2:
            return None
        return settle(ranks, word=error if ranks.rank == failing else None, timeout_s=10**6)

    results = all_ranks(4, does)
    assert results[failing] is error
    for rank in {0, 1, 3} - {failing}:
        assert type(results[rank]) is StoreUnavailable
        assert results[rank].message == f"rank {failing}: no answer"
        assert results[rank].fields == {"key": "k", "rank": failing}


def test_an_error_that_is_told_is_raised_where_it_is_heard():
    """Rank 0 could not begin: nobody waits for what it would have said."""

    def does(ranks):
        if ranks.rank == 0:
            ranks.tell("begin/1", Fenced("no"))
            return None
        return ranks.hear("begin/1", timeout_s=1200)

    results = all_ranks(2, does)
    assert type(results[1]) is Fenced
    assert results[1].message == "rank 0: no"


def test_telling_twice_under_one_topic_is_refused():
    """The second word would be lost, because the first of a key wins; after a settle of its family it is new."""

    def does(ranks):
        ranks.tell("x/1", b"1")
        with pytest.raises(UsageError, match="x/1"):
            ranks.tell("x/1", b"2")
        settle(ranks, "x/2")
        ranks.tell("x/1", b"3")
        return ranks.hear("x/1", timeout_s=1200, who=1 - ranks.rank)

    assert all_ranks(2, does) == {0: b"3", 1: b"3"}


def test_one_who_does_not_tell_is_named():
    """By its number, and what was asked for."""
    results = all_ranks(
        2, lambda ranks: ranks.meet(1200) or ranks.hear("x/1", timeout_s=2, who=1 - ranks.rank)
    )
    assert [results[rank].fields for rank in (0, 1)] == [
        {"missing": (1,), "topic": "x/1"}, {"missing": (0,), "topic": "x/1"},
    ]  # fmt: skip


def test_ranks_at_different_points_of_the_program_are_named():
    """A rank that saves while another restores is not waited for."""
    results = all_ranks(3, lambda ranks: settle(ranks, f"a/{int(ranks.rank == 1)}"))
    for result in results.values():
        assert type(result) is UsageError
    assert "rank 1 is at 'a/1' while rank 0 is at 'a/0'" in results[2].message


def test_what_an_earlier_launch_left_is_not_taken_for_this_ones():
    """The same exchange serves one launch after another: a killed one may have left any of its words."""
    exchange = LocalExchange()
    for launch in range(4):

        def does(ranks, launch=launch):
            return settle(ranks, word=b"%d.%d" % (launch, ranks.rank))

        results = all_ranks(3, does, exchange=exchange)
        assert set(results.values()) == {b"%d.0,%d.1,%d.2" % ((launch,) * 3)}
        broken = all_ranks(
            3, lambda ranks: settle(ranks, timeout_s=1), exchange=exchange, without=[launch % 3]
        )
        assert all(isinstance(result, RanksMissing) for result in broken.values())


def test_another_world_is_refused():
    """A rank that counts other ranks was started by something else."""
    exchange = LocalExchange()
    results = {}

    def run(rank, world):
        try:
            rank_of(exchange, rank, world).meet(4)
        except EverstepError as error:
            results[rank] = error

    threads = [threading.Thread(target=run, args=one) for one in ((0, 2), (1, 3))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert "rank 1 counts 3 ranks, and rank 0 counts 2" in results[0].message
    assert results[1].message


def test_the_exchange_does_not_grow():
    """What all ranks have passed is forgotten: after ten settles there is no more than after two."""
    exchange = LocalExchange()
    left = {}

    def does(ranks):
        for turn in range(10):
            if ranks.rank == 0:
                ranks.tell("save/begin", b"x" * 700_000)
            ranks.hear("save/begin", timeout_s=1200)
            settle(ranks)
            settle(ranks, "other/1")
            if turn in {1, 9} and ranks.rank == 0:
                left[turn] = len(exchange._values)

    all_ranks(3, does)
    assert left[9] <= left[1] + 2 * 2  # others may still be about to forget


def test_a_verdict_costs_few_questions():
    """Without waiting: one put and two questions for another rank; rank 0 asks each once."""
    asked = {}

    class Counted(LocalExchange):
        def find(self, key):
            asked[key] = asked.get(key, 0) + 1
            return super().find(key)

    exchange = Counted()
    ready = threading.Barrier(3)

    def does(ranks):
        ranks.meet(1200)
        ready.wait()
        if ranks.rank == 0:
            time.sleep(0.2)
            asked.clear()
        return settle(ranks)

    all_ranks(3, does, exchange=exchange)
    assert {key.rpartition("/word/")[2]: count for key, count in asked.items() if "/word/" in key} == {
        "1": 1, "2": 1,
    }  # fmt: skip


@pytest.mark.parametrize("topic", ["", "a b", "../x", "a//b", "/a", "a/", "a_b", "a..b", "a."])
def test_a_topic_that_cannot_be_a_key_is_refused(topic):
    """Before anything is said."""
    with pytest.raises(InvalidName):
        rank_of(LocalExchange(), 0, 1).settle(topic, b"", joined, timeout_s=1)


@pytest.mark.parametrize(
    "text", [b"", b"x", b"vtopic", b"etopic\0{", b"etopic\0[]", b"v\xff\0word", b'et\0{"code":1}']
)
def test_a_word_that_nobody_says_is_refused(text):
    """Other versions, or a foreign program at the same key."""
    with pytest.raises(CorruptObject):
        decode(text)


def test_the_ranks_of_a_node_know_each_other():
    """By what each says of its node; asked for once."""
    exchange = LocalExchange()

    def run(ranks):
        return ranks.local_ranks, ranks.local_ranks

    results = {}

    def one(rank):
        results[rank] = run(rank_of(exchange, rank, 5, node=f"node-{rank % 2}"))

    threads = [threading.Thread(target=one, args=(rank,)) for rank in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == {rank: (((0, 2, 4), (1, 3))[rank % 2],) * 2 for rank in range(5)}


def test_under_torchrun_the_ranks_of_a_node_follow_from_the_numbers():
    """Nothing is exchanged."""
    me = Identity(rank=5, world=8, local_rank=1, local_world=4, contiguous=True)
    assert Ranks(LocalExchange(), me, sleep=pytest.fail).local_ranks == (4, 5, 6, 7)
