"""A store call of one rank fails: the error is raised on all ranks, naming it, and the next save or restore is whole."""

import pytest

from tests.checkpointer.launches import told_by_each

HERE = "tests.checkpointer.rank_faults"


@pytest.mark.parametrize("victim", [0, 1, pytest.param(2, marks=pytest.mark.more)])
def test_each_call_of_a_rank_fails_once(zygote, tmp_path, victim):
    """In a save, before and after the call has done its work, and in a restore. Nobody waits for patience to end."""
    ranks = told_by_each(zygote, f"{HERE}:failing", str(tmp_path / "store"), victim, world=3, timeout_s=120)
    failed = {"save": 0, "restore": 0}
    for steps in zip(*ranks, strict=True):
        what, _number, after, outcome, *message = steps[victim]
        assert all(step[:4] == steps[victim][:4] for step in steps), steps
        if outcome == "done":
            continue
        failed[what] += not after
        assert "the cable is out" in message[0]
        names = (
            f"rank {victim}: {message[0]}",
            *[message[0]] * (victim == 0),
        )  # a commit is no rank's own part
        assert all(step[4] in names for rank, step in enumerate(steps) if rank != victim), steps
    assert failed["save"] == (9 if victim == 0 else 2)
    assert failed["restore"] >= (
        5 if victim == 0 else 2
    )  # the ranks of a node read the manifest for each other
