"""A stop that one rank is told of, damage that one rank sees, a save by one clock: the same step on all ranks."""

import pytest

from tests.zygote import Zygote, rendezvous

WORLD = 3


def stop(zygote: Zygote, folder, *, signals, slow=-1, dead=-1, until=40, patience="20"):
    """One launch of the training, with its signals."""
    words = (rendezvous(), str(folder), signals, slow, dead, until)
    return zygote.run("tests.faults.rank_cases:stopped", *words, world=WORLD, EVERSTEP_PATIENCE=patience)


@pytest.mark.parametrize(
    ("signals", "slow"),
    [
        ([[1, 4, 1]], -1),
        ([[0, 4, 1], [1, 4, 1], [2, 4, 1]], -1),
        ([[2, 4, 3]], 0),
        ([[0, 3, 1], [2, 6, 1]], 1),
    ],
    ids=["one rank", "all ranks", "again and again, rank 0 slow", "two ranks at two steps, another one slow"],
)
def test_a_signal_to_any_rank_stops_all_at_one_step(zygote, tmp_path, signals, slow):
    """All end with 75 after the same step, which is durable, and the next launch goes on right there."""
    ended = stop(zygote, tmp_path, signals=signals, slow=slow)
    assert [one.code for one in ended] == [75] * WORLD, [one.printed for one in ended]
    last = {one.told[-1] for one in ended}
    assert len(last) == 1
    reached = last.pop()
    assert 4 <= reached < 40
    again = stop(zygote, tmp_path, signals=[], until=reached + 2)
    assert [one.code for one in again] == [0] * WORLD, [one.printed for one in again]
    assert [one.told for one in again] == [[reached + 1, reached + 2]] * WORLD


def test_a_dead_rank_does_not_keep_the_others(zygote, tmp_path):
    """One is killed as another is told to stop: all that live end in bounded time, with an error, and not with 75."""
    ended = stop(zygote, tmp_path, signals=[[1, 3, 1]], dead=2, patience="3")
    assert [one.code for one in ended] == [1, 1, -9], [one.printed for one in ended]


def test_an_error_in_training_does_not_wait_for_the_dead(zygote, tmp_path):
    """With a save under way that a killed rank will never take part in, the error comes out long before patience ends."""
    words = (rendezvous(), str(tmp_path))
    ended = zygote.run(
        "tests.faults.rank_cases:abandoned", *words, world=2, timeout_s=45, EVERSTEP_PATIENCE="600"
    )
    assert [one.code for one in ended] == [1, -9], [one.printed for one in ended]
    assert "the loss is not a number" in ended[0].printed


def test_a_newer_launch_fences_every_rank(zygote, tmp_path):
    """The ranks of an older launch cannot commit any more: each of them has the error that names both attempts."""
    words = (rendezvous(), str(tmp_path))
    ended = zygote.run("tests.faults.rank_cases:fenced", *words, world=WORLD, EVERSTEP_PATIENCE="20")
    assert [one.code for one in ended] == [0] * WORLD, [one.printed for one in ended]
    for (kind, text), steps in (one.told for one in ended):
        assert kind == "Fenced"
        assert "attempt 1" in text
        assert "attempt 2" in text
        assert steps == [1]


def test_a_signal_in_the_last_step_is_the_same_news_to_all(zygote, tmp_path):
    """Told to stop when all is done: every rank has saved, and every rank says 75."""
    ended = stop(zygote, tmp_path, signals=[[2, 4, 1]], until=5)
    assert [one.code for one in ended] == [75] * WORLD, [one.printed for one in ended]
    assert [one.told[-1] for one in ended] == [5] * WORLD


def test_a_save_by_the_clock_is_one_step_for_all_ranks(zygote, tmp_path):
    """Clocks and speeds differ; the steps saved are the same, several, and each a whole checkpoint.

    Steps that were given are saved at that very step.
    """
    ended = zygote.run("tests.faults.rank_cases:timed", rendezvous(), str(tmp_path), world=WORLD)
    assert [one.code for one in ended] == [0] * WORLD, [one.printed for one in ended]
    steps = ended[0].told[0]
    assert [one.told[0] for one in ended] == [steps] * WORLD
    assert steps[0] == 200
    assert {51, 130} < set(steps)
    assert len(steps) > 3


@pytest.mark.parametrize("who", [0, 2])
def test_damage_that_one_rank_sees_takes_all_to_the_same_older_step(zygote, tmp_path, who):
    """Step 3 does not verify on one rank: all ranks have step 2, whole."""
    words = (rendezvous(), str(tmp_path), who, "previous")
    ended = zygote.run("tests.faults.rank_cases:damaged", *words, world=WORLD)
    assert [one.told for one in ended] == [[2]] * WORLD, [one.printed for one in ended]
    assert "CHECKPOINT DAMAGED" in ended[0].printed


def test_damage_that_one_rank_sees_stops_all_when_asked_to(zygote, tmp_path):
    """on_corrupt="fail": the same error on all ranks, naming the one that saw it."""
    words = (rendezvous(), str(tmp_path), 1, "fail")
    ended = zygote.run("tests.faults.rank_cases:damaged", *words, world=WORLD)
    told = [one.told[0] for one in ended]
    assert [kind for kind, _ in told] == ["CorruptChunk"] * WORLD, [one.printed for one in ended]
    assert all("rank 1" in text for _, text in told[:1] + told[2:])
