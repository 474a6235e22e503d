"""A checkpoint of DCP is loaded on other meshes, placements and numbers of ranks than it was saved on."""

import pytest

import everstep as es
from tests.integrations.dcp import jobs


@pytest.mark.parametrize("saved", list(jobs.LAYOUTS))
def test_each_layout_loads_into_every_other_one(ranks, tmp_path, saved):
    """DTensors by rows, columns, grids, replicas and strides, of even and uneven shapes, on two to four ranks."""
    for found in ranks.run(jobs.reshard, str(tmp_path), saved, list(jobs.LAYOUTS)):
        assert all(one is not False for one in found)
    whole = es.load(str(tmp_path), saved)
    for name in jobs.SHAPES:
        assert whole["model"][name].equal(jobs.full(name)), name
    assert whole["group"] == [{"lr": 0.5, "betas": (0.9, 0.99)}]
