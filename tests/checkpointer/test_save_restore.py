"""A training state saved and brought back."""

import numpy as np
import pytest
import torch
from torch import nn

import everstep as es
from everstep.errors import (
    CheckpointNotFound,
    RestoreMismatch,
    RunNotFound,
    UnsupportedLeaf,
    UsageError,
)
from everstep.store.count import Count
from everstep.store.memory import MemoryStore


def training(seed=0, width=16):
    """A model with dropout, an optimizer with state, a scheduler, counters and random generators."""
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(8, width), nn.Dropout(0.5), nn.BatchNorm1d(width), nn.Linear(width, 1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 3)
    return {
        "model": model,
        "optimizer": optimizer,
        "scheduler": scheduler,
        "rng": es.PerRank(es.RNG()),
        "seen": 0,
        "history": [],
        "table": np.arange(6.0).reshape(2, 3),
    }


def train(state, steps):
    """Real steps that consume randomness and change every kind of leaf."""
    for _ in range(steps):
        loss = state["model"](torch.randn(4, 8)).pow(2).mean()
        state["optimizer"].zero_grad()
        loss.backward()
        state["optimizer"].step()
        state["scheduler"].step()
        state["seen"] += 4
        state["history"] = [*state["history"], loss.item()]
        state["table"] += 1


def test_a_resumed_training_ends_bit_for_bit_like_an_undisturbed_one():
    """Ten steps, or four, a save, a new process's objects, a restore and six more: the same bits."""
    undisturbed = training()
    train(undisturbed, 10)

    store = MemoryStore()
    state = training()
    train(state, 4)
    with es.Checkpointer(store, "r") as ckpt:
        ckpt.save(4, state).wait()
    again = training(seed=99)
    with es.Checkpointer(store, "r") as ckpt:
        assert ckpt.restore(again) == 4
        assert not ckpt.coverage.missing
    train(again, 6)

    for name, tensor in undisturbed["model"].state_dict().items():
        assert torch.equal(tensor, again["model"].state_dict()[name]), name
    ours, theirs = undisturbed["optimizer"].state_dict(), again["optimizer"].state_dict()
    assert ours["param_groups"] == theirs["param_groups"]
    for number, moments in ours["state"].items():
        for name, tensor in moments.items():
            assert torch.equal(tensor, theirs["state"][number][name])
    assert again["history"] == undisturbed["history"]
    assert again["seen"] == 40
    assert np.array_equal(again["table"], undisturbed["table"])
    assert torch.equal(torch.randn(3), torch.randn(3)) is False


def test_a_first_run_and_a_resume_are_the_same_code():
    """Restore answers None on an empty run and changes nothing."""
    state = training()
    before = state["model"][0].weight.clone()
    with es.Checkpointer(MemoryStore(), "r") as ckpt:
        assert ckpt.restore(state) is None
        assert ckpt.latest() is None
        assert ckpt.checkpoints() == []
    assert torch.equal(state["model"][0].weight, before)


def test_a_given_step_is_restored():
    """``step=`` chooses a checkpoint; one that is not there is named, with those near it."""
    store, state = MemoryStore(), {"x": 0}
    with es.Checkpointer(store, "r") as ckpt:
        for step in (10, 20, 30):
            state["x"] = step
            ckpt.save(step, state)
        ckpt.wait()
        assert ckpt.restore(state, step=20) == 20
        assert state["x"] == 20
        with pytest.raises(CheckpointNotFound, match="25") as caught:
            ckpt.restore(state, step=25)
        assert "20" in caught.value.hint


def test_after_a_rollback_the_newest_is_what_was_saved_last():
    """Rolled back to 300, saved 350, an older attempt has 400: the newest is 350 (fault 16)."""
    store, state = MemoryStore(), {"x": 0}
    with es.Checkpointer(store, "r") as ckpt:
        for step in (300, 400):
            state["x"] = step
            ckpt.save(step, state)
    with es.Checkpointer(store, "r") as ckpt:
        assert ckpt.restore(state, step=300) == 300
        state["x"] = 350
        ckpt.save(350, state)
    with es.Checkpointer(store, "r") as ckpt:
        assert ckpt.latest().step == 350
        assert ckpt.restore(state) == 350
        assert state["x"] == 350


def test_a_mismatch_is_refused_by_name_before_anything_changes():
    """A leaf missing, extra, or of another shape stops the restore; naming it in skip lets it pass (fault 32)."""
    store = MemoryStore()
    with es.Checkpointer(store, "r") as ckpt:
        ckpt.save(1, {"w": torch.ones(3), "gone": 5, "same": torch.full((2,), 7.0)})
    state = {"w": torch.zeros(4), "new": 1, "same": torch.zeros(2)}
    with es.Checkpointer(store, "r") as ckpt:
        with pytest.raises(RestoreMismatch) as caught:
            ckpt.restore(state)
        for path in ("w", "gone", "new"):
            assert path in str(caught.value)
        assert torch.equal(state["same"], torch.zeros(2))
        assert ckpt.restore(state, strict=False, skip=["w", "gone", "new"]) == 1
    assert torch.equal(state["same"], torch.full((2,), 7.0))
    assert torch.equal(state["w"], torch.zeros(4))


def test_what_cannot_be_saved_is_refused_by_path_and_type():
    """A function in the state is named; nothing is stored."""
    store = Count(MemoryStore())
    with es.Checkpointer(store, "r") as ckpt:
        before = store.calls["create"]
        with pytest.raises(UnsupportedLeaf, match="hooks/0") as caught:
            ckpt.save(1, {"hooks": [print]})
        assert "builtin_function_or_method" in str(caught.value)
        assert ckpt.latest() is None
        assert store.calls["create"] <= before + 2  # the attempt may be claimed


def test_load_gives_the_same_nesting_without_a_template():
    """``load`` needs no model: dicts, lists, tuples and tensors as they were saved."""
    store = MemoryStore()
    saved = {"a": [1, (2.5, None)], "t": torch.arange(4), "n": {"deep": {1: b"x", "two": True}}}
    with es.Checkpointer(store, "r") as ckpt:
        ckpt.save(3, saved)
    loaded = es.load(store, run="r")
    assert torch.equal(loaded.pop("t"), torch.arange(4))
    assert loaded == {"a": [1, (2.5, None)], "n": {"deep": {1: b"x", "two": True}}}


def test_load_names_what_is_not_there():
    """A run or a step that does not exist is an error of its own kind."""
    store = MemoryStore()
    with es.Checkpointer(store, "r") as ckpt:
        ckpt.save(3, {"x": 1})
    with pytest.raises(RunNotFound):
        es.load(store, run="other")
    with pytest.raises(CheckpointNotFound):
        es.load(store, run="r", step=4)


def test_tied_tensors_stay_tied():
    """A weight under two names is stored once, and shared again after load."""
    store = MemoryStore()
    weight = torch.randn(64, 64)
    with es.Checkpointer(store, "r") as ckpt:
        checkpoint = ckpt.save(1, {"in": weight, "out": weight}).wait()
    assert checkpoint.bytes == weight.nbytes
    loaded = es.load(store, run="r")
    assert loaded["in"].data_ptr() == loaded["out"].data_ptr()


def test_unchanged_chunks_are_not_stored_again():
    """With 90 % of the weights frozen, a further save stores about 10 % of the bytes."""
    store = MemoryStore()
    frozen, trained = torch.randn(9 * 2**20), torch.randn(2**20)
    with es.Checkpointer(store, "r") as ckpt:
        first = ckpt.save(1, {"frozen": frozen, "trained": trained}).wait()
        trained += 1
        second = ckpt.save(2, {"frozen": frozen, "trained": trained}).wait()
    assert first.bytes == second.bytes == 40 * 2**20
    assert first.stored_bytes == pytest.approx(40 * 2**20, abs=2**16)
    assert second.stored_bytes / second.bytes == pytest.approx(0.1, abs=0.01)
    with es.Checkpointer(store, "r") as ckpt:
        again = {"frozen": torch.zeros(9 * 2**20), "trained": torch.zeros(2**20)}
        ckpt.restore(again)
        assert torch.equal(again["frozen"], frozen)
        third = ckpt.save(3, again).wait()
    assert third.stored_bytes < 2**16


def test_metrics_and_config_are_part_of_the_checkpoint():
    """Logged metrics, tensors among them, and those of the save stand in the list."""
    with es.Checkpointer(MemoryStore(), "r", config={"lr": 0.1, "layers": (1, 2)}) as ckpt:
        ckpt.log(loss=torch.tensor(0.5, requires_grad=True), lr=0.1)
        ckpt.log(loss=torch.tensor(0.25))
        ckpt.save(1, {"x": 1}, metrics={"val": float("nan")})
        ckpt.wait()
        metrics = ckpt.latest().metrics
    assert metrics["loss"] == 0.25
    assert metrics["lr"] == 0.1
    assert np.isnan(metrics["val"])


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"run": "no/slash"}, UsageError),
        ({"run": ""}, UsageError),
        ({"run": "r", "every": "atuo"}, UsageError),
        ({"run": "r", "busy": "never"}, UsageError),
        ({"run": "r", "on_corrupt": "ignore"}, UsageError),
        ({"run": "r", "config": {"f": print}}, UnsupportedLeaf),
        ({}, UsageError),
    ],
)
def test_wrong_arguments_are_refused_at_once(arguments, error, monkeypatch):
    """A constructor succeeds or raises."""
    monkeypatch.delenv("EVERSTEP_RUN", raising=False)
    with pytest.raises(error):
        es.Checkpointer(MemoryStore(), **arguments)


def test_a_second_launch_fences_the_first():
    """Once a newer attempt has claimed the run, the older one cannot commit (fault 8)."""
    store = MemoryStore()
    old = es.Checkpointer(store, "r")
    old.save(1, {"x": 1}).wait()
    new = es.Checkpointer(store, "r")
    assert new.restore({"x": 0}) == 1
    pending = old.save(2, {"x": 2})
    with pytest.raises(es.EverstepError) as caught:
        pending.wait()
    assert caught.value.code == "E-FENCED"
    assert new.latest().step == 1
    new.close()
    old.close()


def test_a_model_is_built_again_from_its_record():
    """``rebuild`` calls the recorded factory and loads the weights; without a record it says what to do."""
    store = MemoryStore()
    model = torch.nn.Linear(3, 2)
    architecture = es.Architecture.of(model, args=(3, 2))
    with es.Checkpointer(store, "r", architecture=architecture) as ckpt:
        ckpt.save(1, {"net": model, "n": 1})
    with es.Checkpointer(store, "bare") as ckpt:
        ckpt.save(1, {"net": model})
    again = es.rebuild(store, run="r")
    assert type(again) is torch.nn.Linear
    assert torch.equal(again.weight, model.weight)
    with pytest.raises(UsageError, match="architecture") as caught:
        es.rebuild(store, run="bare")
    assert "Architecture.of" in caught.value.hint


def test_metrics_logged_before_a_stop_are_there_after_it():
    """A resumed run's next checkpoint has the metrics that an undisturbed one would have."""
    store, state = MemoryStore(), {"x": 1}
    with es.Checkpointer(store, "r") as ckpt:
        ckpt.log(accuracy=0.75, loss=1.0)
        ckpt.save(1, state, metrics={"val": 3})
    with es.Checkpointer(store, "r") as ckpt:
        ckpt.restore(state)
        ckpt.log(loss=0.5)
        assert ckpt.save(2, state).wait().metrics == {"accuracy": 0.75, "loss": 0.5, "val": 3}
