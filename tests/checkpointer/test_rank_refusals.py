"""What several ranks must refuse, by name and on all of them, before anything is committed or changed."""

from tests.checkpointer.launches import told_by_each
from tests.checkpointer.rank_refusals import CASES

HERE = "tests.checkpointer.rank_refusals"
DIFFER = "DisagreeingPlans"
WORDS = {
    "shape": (DIFFER, "'bias'", "rank 0, 2: torch tensor float32[3]; rank 1: torch tensor float32[4]"),
    "dtype": (DIFFER, "'bias'", "rank 0, 1: torch tensor float32[3]; rank 2: torch tensor float64[3]"),
    "extra": (DIFFER, "'more'", "rank 0, 1: there is none; rank 2: torch tensor float32[1]"),
    "less": (DIFFER, "'bias'", "rank 0, 2: torch tensor float32[3]; rank 1: there is none"),
    "value": (DIFFER, "'n'", "rank 0, 2: value 5; rank 1: value 6"),
    "order": (DIFFER, "rank 0, 2: dict with keys", "rank 1: dict with keys"),
    "layout": (DIFFER, "'rows'", "shard:0 on a mesh [3] of ranks 0 to 2; rank 1: torch tensor float32[6, 2]"),
    "placement": (DIFFER, "'rows'", "rank 1: torch tensor float32[6, 2], replicate on a mesh [3]"),
    "claims": (DIFFER, "'stages/w'", "other bytes for its [0:4]: rank 0: ", "; rank 1, 2: "),
    "stage_shape": (DIFFER, "'stages/w'", "rank 2: torch tensor float32[5]"),
    "stage_ranks": ("UsageError", "stages is a Stage of ranks (0, 1, 2, 5), and there are 3 ranks"),
    "mesh": ("UsageError", "rows lies on rank 7, and this save has 3 ranks"),
    "object_": ("UnsupportedLeaf", "n is of type object"),
    "first_object": ("UnsupportedLeaf", "n is of type object"),
    "partial": ("UnsupportedLeaf", "rows", "its placement is P(sum)"),
    "again": ("UsageError", "step 30 is not above step 30"),
    "before": ("UsageError", "step 30 is not above step 30"),
    "later": ("UsageError", "this rank saves step 32, and rank 0 saves step 31"),
    "after": ("UsageError", "step 30 is not above step 30"),
}
CULPRIT = {"stage_ranks": 1, "object_": 1, "first_object": 0, "again": 0, "before": 1, "later": 1}
"""The rank that refuses by itself: the others must name it."""


def test_what_ranks_cannot_save_together(zygote, tmp_path):
    """The error names leaf and ranks on all ranks; nothing is committed, and the next save is.

    Nobody waits for the end of patience, which is ten minutes.
    """
    assert WORDS.keys() > CASES.keys()
    told = told_by_each(zygote, f"{HERE}:refused", str(tmp_path / "store"), world=3)
    for rank, words in enumerate(told):
        assert [case for case, *_ in words] == list(WORDS)
        for case, name, message in words:
            kind, *parts = WORDS[case]
            assert name == kind, case
            assert all(part in message for part in parts), message
            if case in CULPRIT:
                assert message.startswith(f"rank {CULPRIT[case]}: ") == (rank != CULPRIT[case]), message


def test_a_restore_that_does_not_fit_one_rank(zygote, tmp_path):
    """All ranks get the error, nothing has changed on any, and the right state is restored after it."""
    told = told_by_each(zygote, f"{HERE}:mismatched", str(tmp_path / "store"), world=3)
    for rank, words in enumerate(told):
        found = {case: (kind, message) for case, kind, message in words}
        for case, culprit, part in (
            ("wider", 1, "bias has shape [4] in the state and [3] in the checkpoint"),
            ("longer", 2, "more is in the state and not in the checkpoint"),
            ("otherwise", 0, "bias is a plain value in the state and an array in the checkpoint"),
        ):
            kind, message = found[case]
            assert kind == "RestoreMismatch"
            assert part in message
            assert message.startswith(f"rank {culprit}: ") == (rank != culprit)
        assert found["other step"][0] == found["no step"][0] == "UsageError"
        assert "rank 0 asked to restore step 2, and rank 1 step 1" in found["other step"][1]
        assert "rank 0 asked to restore the newest, and rank 1 step 1" in found["no step"][1]


def test_an_index_that_is_damaged_or_gone(zygote, tmp_path):
    """All ranks take the checkpoint before, or all stop, whose index ever it is."""
    for words in told_by_each(zygote, f"{HERE}:damaged", str(tmp_path / "store"), world=3):
        assert [word[:2] for word in words if len(word) == 3 and isinstance(word[1], str)] == [
            ["fail", "CorruptObject"],
            ["fail", "MissingObject"],
        ]
        assert all("rank-0000001." in word[2] for word in words if isinstance(word[1], str))
        assert [word for word in words if isinstance(word[1], int)] == [
            ["previous", 1, True],
            ["fail", 1, True],
        ] * 2


def test_variables_that_contradict_the_process_group(zygote, tmp_path):
    """Both sides are named; with the right variables it works."""
    for rank, words in enumerate(
        told_by_each(zygote, f"{HERE}:contradicted", str(tmp_path / "store"), world=2)
    ):
        (_, one, swapped), (_, two, wider), (_, three, text), (_, four, alone) = words
        assert {one, two, three, four} == {"UsageError"}
        assert f"torch.distributed says rank {rank} of 2" in swapped
        assert f"RANK={1 - rank} and WORLD_SIZE=2" in swapped
        assert f"RANK={rank} and WORLD_SIZE=5" in wider
        assert text.startswith("RANK has a value that cannot be used")
        assert f"RANK={rank}" in alone
        assert "WORLD_SIZE=1" in alone


def test_a_rank_that_does_not_come(zygote, tmp_path):
    """Those who wait get an error that names it when their patience ends."""
    *here, away = told_by_each(
        zygote, f"{HERE}:late", str(tmp_path / "store"), world=3, EVERSTEP_PATIENCE="2"
    )
    assert away == [1]
    for words in here:
        (save, why), (restore, reason), step = words
        assert save == "SaveTimeout"
        assert "rank 2 did not come to 'save/2' within 2 s" in why
        assert restore == "RanksMissing"
        assert "rank 2 did not come" in reason
        assert step == 1
