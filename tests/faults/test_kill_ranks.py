"""A rank of a sharded training is killed at any of its store calls: the others end, and all resume at one step."""

import pytest

from tests.zygote import rendezvous

WORLD = 3


def kill_and_resume(zygote, folder, victim, number, after, worlds=(WORLD, 2)):
    """Kill one rank, look how the others end, and start again on as many ranks and on others."""
    case = ("tests.faults.rank_cases:killed_at", rendezvous(), str(folder), victim, number, after)
    ended = zygote.run(*case, world=WORLD, EVERSTEP_PATIENCE="2")
    assert ended[victim].code == -9, ended[victim].printed
    for rank, one in enumerate(ended):
        assert one.code is not None, f"rank {rank} hung:\n{one.printed}"
    acknowledged = max((told for one in ended for told in one.told if isinstance(told, int)), default=0)
    for world in worlds:
        again = zygote.run("tests.faults.rank_cases:resumed", rendezvous(), str(folder), world=world)
        steps = [one.told for one in again]
        assert all(one.code == 0 for one in again), [one.printed for one in again]
        assert steps == [steps[0]] * world, steps
        step = steps[0][0]
        assert step is None or isinstance(step, int), steps
        assert (step or 0) >= acknowledged


def calls(zygote, folder):
    """How many store calls each rank makes when nobody is killed."""
    ended = zygote.run("tests.faults.rank_cases:trained", rendezvous(), str(folder), world=WORLD)
    assert [one.code for one in ended] == [0] * WORLD, [one.printed for one in ended]
    return [one.told[-1]["calls"] for one in ended]


@pytest.mark.parametrize("victim", range(WORLD))
def test_a_rank_killed_in_a_save(zygote, tmp_path, victim):
    """Whatever the rank and a spread of its calls, before and after the call has done its work."""
    made = calls(zygote, tmp_path / "counted")[victim]
    for n, number in enumerate(range(2, made + 1, max(1, made // 3))):
        worlds = (WORLD if n % 2 else 2,)
        kill_and_resume(zygote, tmp_path / f"{number}", victim, number, after=n % 2 == 1, worlds=worlds)


@pytest.mark.more
@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("victim", range(WORLD))
def test_a_rank_killed_at_every_call(zygote, tmp_path, victim, after):
    """Each call of each rank."""
    for number in range(1, calls(zygote, tmp_path / "counted")[victim] + 1):
        kill_and_resume(zygote, tmp_path / f"{number}", victim, number, after)
