"""The agreement on a step under every order of events: a simulation with a clock of its own."""

import random
from dataclasses import dataclass, field
from threading import Condition

from hypothesis import given, settings
from hypothesis import strategies as st

from everstep.errors import RanksMissing, StoreUnavailable
from everstep.ranks import Asked, Kind
from everstep.ranks.course import Course, Hold
from everstep.ranks.local_exchange import LocalExchange
from everstep.ranks.watcher import Watcher

PATIENCE_S = 300.0


class Clock:
    """Seconds that pass when the simulation says so."""

    seconds = 0.0

    def now(self):
        return self.seconds


class Met:
    """The keys of ranks that have met, over a dictionary that is out of reach now and then."""

    def __init__(self, exchange, rank, world, dice, flaky):
        self.exchange, self.rank, self.world, self.dice, self.flaky = exchange, rank, world, dice, flaky

    def _try(self):
        if self.dice.random() < self.flaky:
            raise StoreUnavailable("out of reach")

    def meet(self, timeout_s):
        self._try()

    def put(self, key, value):
        self._try()
        self.exchange.put(key, value)
        self._try()  # the answer may be lost

    def find(self, key):
        self._try()
        return self.exchange.find(key)

    def forget(self, key):
        self.exchange.forget(key)


@dataclass
class Rank:
    """One simulated rank: its loop is at a boundary, or in a step; its watcher turns beside it."""

    number: int
    until: int
    watcher: Watcher
    course: Course
    clock: Clock
    done: int = 0
    in_step: bool = False
    told: list = field(default_factory=list)
    end: object = None  # "stop", "until", "dead", or an error
    failure: BaseException | None = None
    closed: bool = False

    def boundary(self):
        """What the loop does between two steps."""
        self.course.arrive(self.done)
        if self.failure is not None:
            self.end = self.failure
            return
        asked = self.course.leave()
        if isinstance(asked, Hold):
            return
        if asked is not None:
            self.told.append((self.done, asked.kind))
        if asked is not None and asked.kind is Kind.STOP:
            self.end = "stop"
        elif self.done == self.until:
            self.end = "until"
        else:
            self.in_step = True

    def turn(self):
        """What the thread does."""
        if self.failure is None and not self.closed:
            try:
                self.watcher.turn()
            except (RanksMissing, StoreUnavailable) as error:
                self.failure = error

    def close(self):
        """Leave the loop for good."""
        try:
            self.watcher.done()
        except StoreUnavailable:
            return
        self.closed = True


@dataclass(frozen=True, kw_only=True)
class World:
    """What a simulation is made of."""

    ranks: int
    until: int
    lockstep: bool
    seed: int
    requests: list
    flaky: float = 0.0
    dies: tuple | None = None  # rank, and the tick


def simulate(world):
    """Run until all ranks have ended; the ranks."""
    dice, clock, exchange = random.Random(world.seed), Clock(), LocalExchange()
    ranks = []
    for number in range(world.ranks):
        course = Course(done=0, until=world.until)
        watcher = Watcher(
            Met(exchange, number, world.ranks, dice, world.flaky),
            course,
            Condition(),
            place="a",
            notice=lambda: False,
            now=clock.now,
            poll_s=0.02,
            watch_s=0.5,
            patience_s=PATIENCE_S,
        )
        ranks.append(Rank(number, world.until, watcher, course, clock))
    pace = [dice.choice([1, 1, 5]) for _ in ranks]  # some threads seldom run
    tick = 0
    while any(rank.end is None for rank in ranks):
        tick += 1
        assert tick < 200_000, [(rank.done, rank.in_step, rank.course.promised) for rank in ranks]
        clock.seconds += dice.random() * 0.1
        for asking, kind, when in world.requests:
            if when == tick and ranks[asking].end is None:
                ranks[asking].watcher.want(kind, "test")
        if world.dies and world.dies[1] == tick:
            dead = ranks[world.dies[0]]
            dead.end = dead.end or "dead"
            dead.closed = True
        rank = dice.choice(ranks)
        if dice.randrange(pace[rank.number]) == 0:
            rank.turn()
        rank = dice.choice(ranks)
        if rank.end is not None:
            if not rank.closed and dice.random() < 0.1:
                rank.close()
        elif rank.in_step:
            together = all(
                other.done > rank.done or (other.done == rank.done and other.in_step) for other in ranks
            )
            if together or not world.lockstep:
                rank.watcher.step_s = dice.random()
                rank.done, rank.in_step = rank.done + 1, False
        else:
            rank.boundary()
    return ranks


worlds = st.builds(
    World,
    ranks=st.integers(2, 6),
    until=st.integers(0, 40),
    lockstep=st.booleans(),
    seed=st.integers(0, 2**32),
    flaky=st.sampled_from([0.0, 0.0, 0.1]),
    requests=st.lists(
        st.tuples(st.integers(0, 1), st.sampled_from(list(Kind)), st.integers(1, 200)), max_size=4
    ),
)


@settings(max_examples=300, deadline=None)
@given(worlds)
def test_all_ranks_save_and_stop_after_the_same_steps(world):
    """In any order of events, in lockstep or not: nobody goes beyond a target, nobody waits for ever."""
    ranks = simulate(world)
    told = {tuple(one for one in rank.told if one[0] != world.until) for rank in ranks}
    assert len(told) == 1, [(rank.done, rank.told, rank.end) for rank in ranks]
    assert len({rank.done for rank in ranks}) == 1
    assert {rank.end for rank in ranks} <= {"stop", "until"}
    stops = [one for one in told.pop() if one[1] is Kind.STOP]
    assert len(stops) <= 1


@settings(max_examples=200, deadline=None)
@given(worlds, st.integers(0, 5), st.integers(1, 600))
def test_a_rank_that_dies_is_named_or_not_needed(world, rank, tick):
    """The others end at one step, or with an error that names it (or rank 0, which did not come to a target)."""
    dead = rank % world.ranks
    ranks = simulate(
        World(
            ranks=world.ranks,
            until=world.until,
            lockstep=False,  # who waits for a dead rank in a collective waits for the training's own timeout
            seed=world.seed,
            requests=world.requests,
            dies=(dead, tick),
        )
    )
    living = [one for one in ranks if one.end != "dead"]
    for one in living:
        if isinstance(one.end, RanksMissing):
            assert one.end.fields["missing"] in {(dead,), (0,)}
            assert ranks[dead].end == "dead"
    if not any(isinstance(one.end, RanksMissing) for one in living):
        assert len({tuple(saved for saved in one.told if saved[0] != world.until) for one in living}) <= 1


def test_a_stop_beats_a_save_at_the_same_step_and_a_later_one():
    """One verdict for a boundary."""
    for targets in ([(3, Kind.SAVE), (3, Kind.STOP)], [(9, Kind.SAVE), (3, Kind.STOP)]):
        course = Course(done=3, until=10)
        for target, kind in targets:
            course.promise(0)
            course.agree(target, Asked(kind=kind, rank=0, reason=""))
        assert course.leave().kind is Kind.STOP


def test_a_save_is_promised_for_later_so_that_nobody_stands_still():
    """By the steps that go into two questions of the others; a stop is for now; never beyond the end."""
    course = Course(done=5, until=100)
    assert course.leave() is None
    assert course.promise(0) == 6
    assert course.promise(10) == 16
    assert course.promise(1000) == 100


def test_a_boundary_at_the_promise_is_held_until_the_target_is_known():
    """And one below the target is left."""
    course = Course(done=5, until=100)
    course.promise(0)
    assert isinstance(course.leave(), Hold)
    course.agree(7, Asked(kind=Kind.STOP, rank=1, reason="r"))
    assert course.leave() is None
    course.arrive(6)
    assert course.leave() is None
    course.arrive(7)
    assert course.leave().rank == 1
