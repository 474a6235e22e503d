"""``dcp.async_save``: what training changes after the call is not in the checkpoint, and memory is kept."""

import gc

import pytest
import torch
import torch.distributed.checkpoint as dcp

import everstep as es
from everstep.integrations.dcp import Stager, StorageWriter
from tests.integrations.dcp import async_jobs
from tests.integrations.dcp.worlds import quiet


@pytest.mark.parametrize("own_stager", [True, False])
def test_in_a_thread(ranks, tmp_path, own_stager):
    """Each checkpoint holds what was there at the call; the same memory serves all of them."""
    found = ranks.run(async_jobs.saves, str(tmp_path), "r", "THREAD", [1, 2, 3], own_stager)
    assert [seen for seen, _ in found] == [[1.0, 2.0, 3.0]] * 4
    # a stager of one's own must wait for DCP to forget a state, which may be just too late for the next save
    assert max(stretches for _, stretches in found) <= (2 if own_stager else 1)
    with es.Checkpointer(str(tmp_path), "r") as ckpt:
        assert [(one.step, one.attempt, one.world) for one in ckpt.checkpoints()] == [
            (3, 1, 4),
            (2, 1, 4),
            (1, 1, 4),
        ]


@pytest.mark.more
def test_in_a_process(ranks, tmp_path):
    """DCP sends a copy of the writer there for each save; they claim one attempt all the same."""
    found = ranks.run(async_jobs.saves, str(tmp_path), "r", "PROCESS", [1, 2], False, timeout=240)
    assert [seen for seen, _ in found] == [[1.0, 2.0]] * 4
    with es.Checkpointer(str(tmp_path), "r") as ckpt:
        assert [(one.step, one.attempt) for one in ckpt.checkpoints()] == [(2, 1), (1, 1)]


def test_an_error_in_the_background_is_the_futures(ranks, tmp_path):
    """And nothing is committed; the next save succeeds."""
    assert ranks.run(async_jobs.failing, str(tmp_path), "r") == [[1, 2.0]] * 4


def test_a_dtensor_is_staged_as_one(ranks):
    """With its mesh and placements."""
    assert ranks.run(async_jobs.staged_dtensor) == [3.0] * 4


class TestStager:
    def test_tensors_of_any_form_are_copied(self):
        """Transposed, shared, empty, complex and conjugated ones, in any nesting; objects too."""
        base = torch.arange(12.0).reshape(3, 4)
        state = {
            "a": base.t(),
            "b": [base, {"c": base[1]}],
            "d": (torch.empty(0, 2), torch.tensor(3)),
            "e": torch.tensor([1 + 2j]).conj(),
            "f": {"list": [1, 2]},
            "g": torch.nn.Parameter(torch.ones(2)),
        }
        staged = Stager().stage(state)
        before = [base.t().clone(), base.clone(), base[1].clone()]
        base.zero_()
        state["f"]["list"].append(3)
        assert torch.equal(staged["a"], before[0])
        assert torch.equal(staged["b"][0], before[1])
        assert torch.equal(staged["b"][1]["c"], before[2])
        assert staged["d"][0].shape == (0, 2)
        assert staged["d"][1] == 3
        assert staged["e"].item() == 1 - 2j
        assert staged["f"] == {"list": [1, 2]}
        assert not staged["g"].requires_grad

    def test_memory_in_use_is_not_used_again(self):
        """Two that are held at once have two stretches; when they are gone no more is taken."""
        stager = Stager()
        first = stager.stage({"a": torch.full((1000,), 1.0)})
        once = stager.size
        second = stager.stage({"a": torch.full((1000,), 2.0)})
        assert stager.size == 2 * once
        assert first["a"].eq(1).all()
        assert second["a"].eq(2).all()
        del first, second
        gc.collect()
        for value in range(5):
            staged = stager.stage({"a": torch.full((1000,), float(value))})
            assert staged["a"].eq(value).all()
            del staged
        assert stager.size == 2 * once
        stager.close()
        assert stager.size == 0

    def test_a_view_of_a_staged_tensor_keeps_the_memory(self):
        """Also when nobody has the tensor itself any more."""
        stager = Stager()
        part = stager.stage({"a": torch.full((1000,), 1.0)})["a"][10:20]
        stager.stage({"a": torch.full((1000,), 2.0)})
        assert part.eq(1).all()

    def test_the_writer_is_a_stager_of_its_own(self, tmp_path):
        """async_save without one uses the writer's kept memory."""
        writer = StorageWriter(tmp_path, "r", 1)
        state = {"a": torch.ones(1000)}
        with quiet():
            done = dcp.async_save(state, storage_writer=writer, no_dist=True)
            state["a"].zero_()
            done.result()
        assert es.load(str(tmp_path), "r")["a"].eq(1).all()
        assert writer._stager.size >= 4000
        writer.close()
