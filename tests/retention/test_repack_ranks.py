"""A repack between two saves of a training on several ranks."""

from tests.checkpointer.launches import told_by_each
from tests.retention.rank_repack import FROZEN, MORE

HERE = "tests.retention.rank_repack"
HEADERS = 2 * 4096


def test_every_rank_goes_on_from_the_base_that_has_the_place(zygote, tmp_path):
    """The next save stores what always changes and what has moved; the one after that no more than what changes."""
    first, _ = told_by_each(zygote, f"{HERE}:trained", str(tmp_path / "store"), world=2)
    assert first[0] == [MORE + FROZEN + HEADERS, MORE + HEADERS]
