"""The checkpoint manager under torchtitan's own containers, loader and manager, on one rank."""

import importlib.util
import os
import signal

import pytest
import torch
import torch.distributed as dist

from everstep.errors import NotFound, RestoreMismatch, UsageError

if any(importlib.util.find_spec(needed) is None for needed in ("torchtitan", "spmd_types", "tyro")):
    pytest.skip(
        "torchtitan is not installed: pip install --no-deps torchtitan==0.3.0, with spmd_types and tyro",
        allow_module_level=True,
    )

from torchtitan.components.checkpointer import CheckpointManager as TheirManager

from everstep.integrations.torchtitan import CheckpointManager
from tests.integrations.torchtitan.parts import Layers, MiniTrainer, Rename

# torchtitan's loader and schedulers call what torch has deprecated
pytestmark = [
    pytest.mark.filterwarnings("ignore:'set_vital' is deprecated"),
    pytest.mark.filterwarnings("ignore:To get the last learning rate:UserWarning"),
]


def config(**given):
    """Ours, on."""
    return CheckpointManager.Config(enable=True, **{"interval": 2, **given})


def same(one, other):
    """Whether all tensors are, bit for bit, and of one type."""
    assert one.keys() == other.keys()
    for name, value in one.items():
        assert value.dtype == other[name].dtype, name
        assert torch.equal(value, other[name]), name


@pytest.fixture
def alone():
    """A process group of one, as torch's own checkpoints need."""
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def test_a_resumed_training_is_the_unbroken_one_bit_for_bit(tmp_path):
    """Parameters, moments, schedules and the data go on; so does a training without any checkpointer."""
    unbroken = MiniTrainer(None, tmp_path)
    unbroken.load()
    unbroken.train()
    first = MiniTrainer(config(), tmp_path)
    assert not first.load()
    assert first.train(until=5) == [2, 4]
    first.checkpointer.close()
    second = MiniTrainer(config(), tmp_path)
    assert second.load()
    assert second.step == 4
    assert second.train() == [6]
    second.checkpointer.close()
    same(second.tensors(), unbroken.tensors())
    assert second.state_dict() == unbroken.state_dict()
    assert second.lr_schedulers.get_metrics() == unbroken.lr_schedulers.get_metrics()


def test_load_step_goes_back(tmp_path):
    """``load_step`` names a checkpoint; what is saved from there on is the newest."""
    first = MiniTrainer(config(), tmp_path)
    first.load()
    first.train(until=2)
    at_two = first.tensors()
    first.train()
    first.checkpointer.close()
    second = MiniTrainer(config(), tmp_path, steps=4)
    assert second.load(2)
    same(second.tensors(), at_two)
    assert second.train() == [4]
    second.checkpointer.close()
    third = MiniTrainer(config(), tmp_path)
    assert third.load()
    assert third.step == 4
    third.checkpointer.close()
    with pytest.raises(NotFound):
        MiniTrainer(config(), tmp_path).load(3)


def test_a_stop_signal_saves_the_step_and_exits(tmp_path):
    """SIGTERM in the middle of a step ends with code 75, and that step is there."""
    first = MiniTrainer(config(interval=100), tmp_path)
    first.load()
    first.train(until=2)
    os.kill(os.getpid(), signal.SIGTERM)
    with pytest.raises(SystemExit) as stop:
        first.train()
    assert stop.value.code == 75
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    second = MiniTrainer(config(), tmp_path)
    assert second.load()
    assert second.step == 3
    same(second.tensors(), first.tensors())
    second.checkpointer.close()


def test_first_and_last_steps_are_saved_when_asked_for(tmp_path):
    """``enable_first_step_checkpoint``, and the last step in any case; ``load_only`` saves nothing."""
    first = MiniTrainer(config(interval=100, enable_first_step_checkpoint=True), tmp_path, steps=3)
    first.load()
    assert first.train() == [1, 3]
    first.checkpointer.close()
    second = MiniTrainer(config(load_only=True), tmp_path, steps=6)
    assert second.load()
    assert second.step == 3
    assert second.train() == []
    second.checkpointer.close()


def test_a_trainer_that_does_not_say_its_steps(tmp_path):
    """Some trainers of torchtitan have another shape; they save as they go, and last when they say so."""
    first = MiniTrainer(config(), tmp_path)
    del first.config
    first.checkpointer._until = 2**62
    first.load()
    first.config = MiniTrainer(None, tmp_path, steps=5).config
    assert first.train() == [2, 4, 5]
    first.checkpointer.maybe_wait_for_saving()
    first.checkpointer.close()
    second = MiniTrainer(config(), tmp_path)
    second.load()
    assert second.step == 5
    second.checkpointer.close()


def test_moments_keep_their_type(tmp_path):
    """Moments in bfloat16 beside parameters in float32, which torch's loading would cast, stay what they are."""

    def halved(trainer):
        for optimizer in trainer.optimizers:
            for held in optimizer.state.values():
                held["exp_avg"] = held["exp_avg"].bfloat16()
        return trainer

    first = MiniTrainer(config(), tmp_path)
    first.load()
    first.train(until=1)
    halved(first)
    first.checkpointer._checkpointer.save(7, first.checkpointer._state)
    first.checkpointer.close()
    second = MiniTrainer(config(), tmp_path, steps=9)
    second.optimizers.state_dict()
    halved(second)
    assert second.load()
    same(second.tensors(), first.tensors())
    second.checkpointer.close()


def test_parts_that_are_excluded_stay_as_they_are(tmp_path):
    """``exclude_from_loading``: the data begins anew, the rest goes on."""
    first = MiniTrainer(config(), tmp_path)
    first.load()
    first.train(until=4)
    first.checkpointer.close()
    second = MiniTrainer(config(exclude_from_loading=["dataloader"]), tmp_path)
    assert second.load()
    same(second.tensors(), first.tensors())
    assert second.loader.dataset.at == 0
    second.checkpointer.close()
    with pytest.raises(UsageError, match="names loader, which"):
        MiniTrainer(config(exclude_from_loading=["loader"]), tmp_path)
    other = MiniTrainer(config(), tmp_path, data_ranks=2)
    with pytest.raises(Exception, match="data-parallel rank 0 of 1, and this is rank 0 of 2"):
        other.load()


def test_a_seed_checkpoint_gives_the_model_only(tmp_path):
    """Step 0, saved before any load: the parameters are those of the seed, and training begins at its first step."""
    seed = MiniTrainer(config(), tmp_path)
    with torch.no_grad():
        seed.model_parts[0].layers["0"].weight.fill_(0.5)
    assert seed.checkpointer.save(0, last_step=True)
    seed.checkpointer.close()
    first = MiniTrainer(config(), tmp_path, data_rank=1, data_ranks=2)
    assert first.load()
    assert torch.all(first.model_parts[0].layers["0"].weight == 0.5)
    assert first.step == 0
    assert not any(optimizer.state for optimizer in first.optimizers)
    assert first.train(until=2) == [2]
    first.checkpointer.close()


def test_another_model_is_refused(tmp_path):
    """What does not fit is named, and it is not taken for a seed."""
    first = MiniTrainer(config(), tmp_path)
    first.load()
    first.train(until=2)
    first.checkpointer.close()
    with pytest.raises(RestoreMismatch, match=r"layers\.2"):
        MiniTrainer(config(), tmp_path, parts=[Layers((0, 1))]).load()


@pytest.mark.usefixtures("alone")
def test_a_run_begins_from_a_folder_of_torchtitans_own(tmp_path):
    """All of it goes on from its step, which is the run's first checkpoint; the model alone begins at step 0."""
    theirs = TheirManager.Config(enable=True, interval=2, last_save_model_only=False)
    old = MiniTrainer(theirs, tmp_path / "old", steps=4)
    old.load()
    old.train()
    old.checkpointer.close()
    folder = str(tmp_path / "old" / "checkpoint" / "step-4")
    first = MiniTrainer(config(initial_load_path=folder, initial_load_model_only=False), tmp_path / "all")
    assert first.load()
    assert first.step == 4
    same(first.tensors(), old.tensors())
    assert first.train() == [6]
    first.checkpointer.close()
    model_only = MiniTrainer(config(initial_load_path=folder), tmp_path / "model")
    assert model_only.load()
    assert model_only.step == 0
    assert torch.equal(model_only.tensors()["layers.1.weight"], old.tensors()["layers.1.weight"])
    assert not any(optimizer.state for optimizer in model_only.optimizers)
    model_only.checkpointer.close()
    with pytest.raises(NotFound, match="no folder"):
        MiniTrainer(config(initial_load_path=str(tmp_path / "nothing")), tmp_path / "none").load()


@pytest.mark.usefixtures("alone")
def test_hugging_faces_safetensors_in_and_out(tmp_path):
    """The last step leaves the model under their names beside the checkpoint, and a run can begin from it."""
    out = config(last_save_in_hf=True, last_save_model_only=True)
    first = MiniTrainer(out, tmp_path / "out", adapter=Rename(None))
    first.load()
    first.train()
    first.checkpointer.close()
    folder = tmp_path / "out" / "checkpoint-hf" / "step-6"
    assert [each.suffix for each in folder.glob("*.safetensors")] == [".safetensors"]
    begin = config(initial_load_in_hf=True, initial_load_path=str(folder))
    second = MiniTrainer(begin, tmp_path / "in", adapter=Rename(None))
    assert second.load()
    assert second.step == 0
    ours, theirs = second.tensors(), first.tensors()
    assert all(torch.equal(ours[name], theirs[name]) for name in ours if "/" not in name)
    second.checkpointer.close()
    with pytest.raises(UsageError, match="initial_load_in_hf"):
        MiniTrainer(begin, tmp_path / "no adapter").load()


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"keep_latest_k": 3, "keep": "last 2"}, "keep_latest_k"),
        ({"keep": "latest 2"}, "latest"),
        ({"last_save_model_only": True}, "last_save_model_only"),
        ({"exclude_from_loading": ["train_state"]}, "train_state"),
    ],
)
def test_settings_that_cannot_be_kept_are_refused(given, named):
    """By name, with what to do instead."""
    with pytest.raises(UsageError, match=named) as error:
        config(**given)
    assert error.value.hint


def test_a_manager_that_is_off_does_nothing(tmp_path):
    """``enable=False`` makes no store."""
    off = MiniTrainer(None, tmp_path)
    assert not off.load()
    assert off.train() == []
    off.checkpointer.close()
    assert list(tmp_path.iterdir()) == []
