"""Who a process is."""

import pytest

from everstep.config import process_settings
from everstep.errors import NotYetSupported
from everstep.ranks import Identity, who_am_i


def test_without_a_launcher_a_process_is_alone():
    """Rank 0 of 1."""
    assert who_am_i(process_settings({})) == Identity(rank=0, world=1)


def test_more_than_one_rank_is_an_honest_error():
    """Two ranks that saved as if each were alone would overwrite a run's truth: refused, by number."""
    with pytest.raises(NotYetSupported, match="rank 1 of 4") as caught:
        who_am_i(process_settings({"RANK": "1", "WORLD_SIZE": "4"}))
    assert "WORLD_SIZE" in caught.value.hint
