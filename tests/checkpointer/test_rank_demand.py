"""Saves that are asked for on several ranks: through the store, or by a signal to any of them."""

from tests.checkpointer.launches import told_by_each

HERE = "tests.checkpointer.rank_demand"


def test_whoever_is_asked_all_ranks_save_the_same_step(zygote, tmp_path):
    """A request, a signal to the last rank, all at once: three saves, each whole and at one step for all ranks."""
    ranks = told_by_each(
        zygote, f"{HERE}:asked", str(tmp_path / "store"), 1_000_000, world=3, EVERSTEP_WATCH="0.05s"
    )
    words = [rank[0] for rank in ranks]
    assert words == [words[0]] * 3
    began, saved = words[0]["began"], words[0]["saved"]
    assert [reason for _, reason in saved] == ["asked", "asked", "asked", "end"]
    steps = [step for step, _ in saved]
    assert began[0] <= steps[0] < began[1] <= steps[1] < began[2] <= steps[2] < steps[3]
    assert ranks[1][1] == [steps[0], steps[2]]
