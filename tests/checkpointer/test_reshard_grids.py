"""Random tensors in random layouts, saved by four ranks and restored in others, by these and by three, two and one."""

import random

import pytest
import torch

import everstep as es
from tests.checkpointer.launches import told
from tests.checkpointer.rank_grids import wholes

HERE = "tests.checkpointer.rank_grids"


def there_and_back(zygote, folder, seeds, *, saving, restoring):
    """Each seed is a case: print those that are wrong."""
    assert told(zygote, f"{HERE}:moved", folder, seeds, world=saving, timeout_s=300) == ["done"]
    assert told(zygote, f"{HERE}:restored", folder, seeds, world=restoring, timeout_s=300) == ["done"]
    for step, seed in enumerate(seeds, 1):
        state = es.load(folder, "r", step=step)
        for name, whole in wholes(seed).items():
            assert torch.equal(state[name], whole), (seed, name)


@pytest.mark.parametrize(("saving", "restoring"), [(4, 3), (2, 4)])
def test_any_layout_comes_back_in_any_other(zygote, tmp_path, saving, restoring):
    """Twenty saves, and each restored twice, bit for bit."""
    there_and_back(
        zygote, str(tmp_path / "store"), list(range(0, 200, 10)), saving=saving, restoring=restoring
    )


@pytest.mark.more
@pytest.mark.parametrize(("saving", "restoring"), [(8, 4), (4, 8), (3, 2), (1, 4), (4, 1)])
def test_new_layouts_come_back_in_any_other(zygote, tmp_path, saving, restoring):
    """Cases of this run alone; the seeds are shown when one is wrong."""
    first = random.SystemRandom().randrange(10**6)
    print(f"seeds from {first}")  # noqa: T201
    there_and_back(
        zygote,
        str(tmp_path / "store"),
        [first + 10 * n for n in range(40)],
        saving=saving,
        restoring=restoring,
    )
