"""``dcp.save`` and ``dcp.load`` in one process: what comes back, by which name, and what is refused."""

import enum
import io
import warnings
from dataclasses import dataclass

import numpy as np
import pytest
import torch
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.default_planner import (
    DefaultLoadPlanner,
    DefaultSavePlanner,
    _EmptyStateDictLoadPlanner,
)
from torch.distributed.checkpoint.state_dict_loader import _load_state_dict

import everstep as es
from everstep.errors import (
    CheckpointNotFound,
    Fenced,
    InvalidName,
    ObjectNotFound,
    RestoreError,
    SaveFailed,
    UnsupportedLeaf,
    UsageError,
)
from everstep.integrations.dcp import StorageReader, StorageWriter
from tests.cli.worlds import ask
from tests.integrations.dcp.worlds import emptied, load, quiet, save, state_at


@pytest.fixture
def store(tmp_path):
    """An empty place for a store."""
    return str(tmp_path / "store")


def same(found, wanted, path=""):
    """Equal, bit for bit, and of the same types."""
    assert type(found) is type(wanted), f"{path}: {type(found)} for {type(wanted)}"
    if isinstance(wanted, dict):
        assert set(found) == set(wanted), path
        for key in wanted:
            same(found[key], wanted[key], f"{path}/{key}")
    elif isinstance(wanted, list | tuple):
        assert len(found) == len(wanted), path
        for n, (one, other) in enumerate(zip(found, wanted, strict=True)):
            same(one, other, f"{path}/{n}")
    elif isinstance(wanted, torch.Tensor):
        assert found.dtype == wanted.dtype, path
        assert torch.equal(found, wanted), path
    elif isinstance(wanted, np.ndarray):
        np.testing.assert_array_equal(found, wanted)
    else:
        assert found == wanted, path


def failure(caught):
    """The error that DCP wrapped."""
    ((error, _trace),) = caught.value.failures.values()
    return error


class TestRoundTrip:
    def test_all_comes_back_as_it_was(self, store):
        """Tensors of any type and shape, lists of dicts, tuples with tensors, arrays, texts, bytes, sets."""
        save(store, "r", 5, state_at(5))
        same(load(store, "r", emptied(state_at(5))), state_at(5))

    def test_it_is_a_checkpoint_of_everstep(self, store, tmp_path, capsys):
        """es.load gives the nesting; ls, show, verify, diff and export work on it."""
        for step in (5, 6):
            save(store, "r", step, state_at(step))
        found = es.load(store, "r", step=5)
        same(found["model"], state_at(5)["model"])
        same(found["rng"], state_at(5)["rng"])
        assert found["optimizer"]["param_groups"] == state_at(5)["optimizer"]["param_groups"]
        assert [
            one["step"] for one in ask(capsys, "ls", "r", "--store", store, "--json").json["checkpoints"]
        ] == [6, 5]
        for words in (["show", "r@5"], ["verify", "r"], ["diff", "r@5", "r@5"]):
            answer = ask(capsys, *words, "--store", store)
            assert answer.code == 0, answer.err
        assert ask(capsys, "diff", "r@5", "r@6", "--store", store).code == 10
        out = tmp_path / "m.safetensors"
        assert ask(capsys, "export", "r", "--select", "model", "--out", out, "--store", store).code == 0

    def test_a_model_goes_from_dcp_to_the_checkpointer_and_back(self, store):
        """``model/<name>`` of a Checkpointer is ``model.<name>`` of DCP."""
        model, other = nn.Linear(4, 3), nn.Linear(4, 3)
        save(store, "a", 1, {"model": model.state_dict(), "epoch": 3})
        state = {"model": other, "epoch": 0}
        with es.Checkpointer(store, "a") as ckpt:
            assert ckpt.restore(state) == 1
        assert state["epoch"] == 3
        assert torch.equal(other.weight, model.weight)
        with es.Checkpointer(store, "b") as ckpt:
            ckpt.save(7, {"model": model, "epoch": 4, "groups": [{"lr": 0.5}]}).wait()
        found = load(store, "b", {"model": emptied(model.state_dict()), "epoch": 0, "groups": [{"lr": 0.0}]})
        assert torch.equal(found["model"]["weight"], model.weight)
        assert (found["epoch"], found["groups"]) == (4, [{"lr": 0.5}])

    def test_tied_tensors_and_views_of_a_checkpointer_load(self, store):
        """A part of another tensor's memory, a transposed one, and one tensor under two names."""
        base = torch.arange(24.0)
        state = {"head": base[:12], "tail": base[6:].reshape(6, 3), "turned": base[:6].view(2, 3).t()}
        state["again"] = state["head"]
        with es.Checkpointer(store, "v") as ckpt:
            ckpt.save(1, state).wait()
        found = load(store, "v", {name: torch.zeros(value.shape) for name, value in state.items()})
        for name, value in state.items():
            assert torch.equal(found[name], value), name

    def test_stateful_objects_are_asked_and_told(self, store):
        """What has state_dict and load_state_dict stands for itself."""

        class Counter:
            def __init__(self, n):
                self.n = n

            def state_dict(self):
                return {"n": self.n, "t": torch.full((2,), float(self.n))}

            def load_state_dict(self, state):
                self.n = state["n"]

        save(store, "r", 1, {"counter": Counter(9)})
        counter = Counter(0)
        load(store, "r", {"counter": counter})
        assert counter.n == 9

    def test_a_state_that_only_the_metadata_knows_is_rebuilt(self, store):
        """DCP's planner for an empty state dict makes it from our metadata."""
        save(store, "r", 1, state_at(1))
        found = {}
        with quiet():
            _load_state_dict(
                found, StorageReader(store, "r"), no_dist=True, planner=_EmptyStateDictLoadPlanner()
            )
        assert torch.equal(found["model"]["embed.weight"], state_at(1)["model"]["embed.weight"])
        assert found["optimizer"]["param_groups"][0]["betas"] == (0.9, 0.999)

    def test_targets_of_any_form_are_filled(self, store):
        """Another element type, a transposed tensor, a part of a larger one, a leaf that wants gradients."""
        whole = torch.arange(12.0).reshape(3, 4)
        save(store, "r", 1, {"a": whole, "b": whole, "c": whole, "d": whole})
        large = torch.zeros(6, 8)
        state = {
            "a": torch.zeros(3, 4, dtype=torch.float64),
            "b": torch.zeros(4, 3).t(),
            "c": large[1:4, 2:6],
            "d": torch.zeros(3, 4, requires_grad=True),
        }
        load(store, "r", state)
        for name, value in state.items():
            assert torch.equal(value.detach().float(), whole), name
        assert large.sum() == whole.sum()

    def test_half_a_state_is_loaded_when_asked_for(self, store):
        """A smaller state dict takes what it names; a name too many needs allow_partial_load."""
        save(store, "r", 1, {"a": torch.ones(3), "b": torch.ones(4)})
        assert load(store, "r", {"b": torch.zeros(4)})["b"].sum() == 4
        more = {"a": torch.zeros(3), "new": torch.zeros(2)}
        with pytest.raises(CheckpointException) as caught:
            load(store, "r", more)
        assert "new" in str(failure(caught))
        load(store, "r", more, planner=DefaultLoadPlanner(allow_partial_load=True))
        assert more["a"].sum() == 3

    def test_another_shape_is_refused_by_name(self, store):
        """As DCP refuses it."""
        save(store, "r", 1, {"a": torch.ones(3)})
        with pytest.raises(CheckpointException) as caught:
            load(store, "r", {"a": torch.zeros(4)})
        assert "a" in str(failure(caught))


class TestWhich:
    def test_the_newest_is_read_when_no_step_is_named(self, store):
        """And the step that is named, by the reader or by checkpoint_id."""
        writer = StorageWriter(store, "r")
        for step in (1, 2, 3):
            writer.step = step
            with quiet():
                dcp.save({"a": torch.tensor(step)}, storage_writer=writer, no_dist=True)
        assert load(store, "r", {"a": torch.tensor(0)})["a"] == 3
        assert load(store, "r", {"a": torch.tensor(0)}, step=1)["a"] == 1
        reader = StorageReader(store, "other")
        assert load(store, "r", {"a": torch.tensor(0)}, checkpoint_id="2")["a"] == 2
        state = {"a": torch.tensor(0)}
        with quiet():
            dcp.load(state, storage_reader=reader, checkpoint_id="r@2", no_dist=True)
        assert state["a"] == 2
        assert reader.checkpoint_id == "r@2"
        assert writer.checkpoint is not None
        assert writer.checkpoint.attempt == 1

    @pytest.mark.parametrize(
        ("named", "step"), [(4, 4), ("4", 4), ("r@4", 4), ("out/ckpt/step-4", 4), ("step_00004", 4)]
    )
    def test_checkpoint_ids(self, store, named, step):
        """A step, RUN@STEP, or a folder as training frameworks name them."""
        writer = StorageWriter(store, "r")
        with quiet():
            dcp.save({"a": torch.ones(1)}, storage_writer=writer, checkpoint_id=named, no_dist=True)
        assert writer.checkpoint.step == step
        assert StorageWriter.validate_checkpoint_id(named)

    @pytest.mark.parametrize("named", ["", "latest", "r@", "r@x", "a/b", -1, "../x@4"])
    def test_other_ids_are_refused(self, store, named):
        """In words, before anything is asked of the store."""
        with pytest.raises(InvalidName):
            StorageWriter(store, "r").reset(named)
        assert not StorageReader.validate_checkpoint_id(named)

    def test_steps_of_a_writer_count_upwards(self, store):
        """The same step again, or a lower one, is refused; a new writer may, and is the newest then."""
        writer = save(store, "r", 5, {"a": torch.zeros(1)})
        for step in (5, 4):
            writer.step = step
            with quiet(), pytest.raises(CheckpointException) as caught:
                dcp.save({"a": torch.ones(1)}, storage_writer=writer, no_dist=True)
            assert isinstance(failure(caught), UsageError)
        save(store, "r", 4, {"a": torch.full((1,), 4.0)})
        assert load(store, "r", {"a": torch.zeros(1)})["a"] == 4
        assert load(store, "r", {"a": torch.ones(1)}, step=5)["a"] == 0

    def test_a_writer_without_a_step_says_so(self, store):
        """In words."""
        with quiet(), pytest.raises(CheckpointException) as caught:
            dcp.save({"a": torch.ones(1)}, storage_writer=StorageWriter(store, "r"), no_dist=True)
        assert isinstance(failure(caught), UsageError)

    def test_what_is_not_there_says_so(self, store):
        """A step nobody saved, and a reader makes no store."""
        save(store, "r", 1, {"a": torch.ones(1)})
        with pytest.raises(CheckpointException) as caught:
            load(store, "r", {"a": torch.ones(1)}, step=2)
        assert "no checkpoint at step 2" in str(failure(caught))
        with pytest.raises(CheckpointNotFound):
            StorageReader(store, "r", 2).read_metadata()

    def test_a_rank_whose_metadata_failed_once_does_not_go_on_alone(self, store):
        """DCP asks again for a rank's own metadata; an answer would make it leave the other ranks alone."""
        reader = StorageReader(store, "r")
        with pytest.raises(ObjectNotFound):
            reader.read_metadata()
        save(store, "r", 1, {"a": torch.ones(1)})
        with pytest.raises(ObjectNotFound):
            reader.read_metadata(rank=0)
        assert "a" in reader.read_metadata().state_dict_metadata

    def test_an_older_writer_is_fenced(self, store):
        """A coordinator that comes back after another one began cannot commit."""
        old = save(store, "r", 1, {"a": torch.ones(1)})
        save(store, "r", 2, {"a": torch.ones(1)})
        old.step = 3
        with quiet(), pytest.raises(CheckpointException) as caught:
            dcp.save({"a": torch.ones(1)}, storage_writer=old, no_dist=True)
        assert isinstance(failure(caught), Fenced)
        assert [one.step for one in es.Checkpointer(store, "r").checkpoints()] == [2, 1]

    def test_what_did_not_change_is_not_stored_again(self, store):
        """The writer's last checkpoint is the base of the next one."""
        writer = save(store, "r", 1, state_at(1))
        writer.step = 2
        with quiet():
            dcp.save(state_at(1), storage_writer=writer, no_dist=True)
        assert writer.checkpoint.stored_bytes == 0
        same(load(store, "r", emptied(state_at(1))), state_at(1))

    def test_metrics_and_configuration_go_along(self, store, capsys):
        """As a Checkpointer's do."""
        writer = StorageWriter(store, "r", 1, metrics={"loss": 0.5}, config={"lr": 0.1})
        with quiet():
            dcp.save({"a": torch.ones(1)}, storage_writer=writer, no_dist=True)
        assert ask(capsys, "show", "r", "--store", store, "--json").json["checkpoint"]["metrics"] == {
            "loss": 0.5
        }


@dataclass
class Config:
    lr: float = 0.1


class Colour(enum.Enum):
    RED = 1


class TestObjects:
    @pytest.mark.parametrize(
        "value", [Config(), Colour.RED, object(), nn.Linear(1, 1), (1, Config()), {1: 2}.keys()]
    )
    def test_what_would_need_a_pickle_is_refused_by_name(self, store, value):
        """Nothing is committed."""
        with pytest.raises(CheckpointException) as caught:
            save(store, "r", 1, {"w": torch.ones(2), "args": {"config": [value]}})
        error = failure(caught)
        assert isinstance(error, UnsupportedLeaf)
        assert "args.config" in error.message
        assert es.Checkpointer(store, "r").latest() is None

    def test_nothing_in_the_store_is_a_pickle(self, store, tmp_path):
        """Neither what torch.save writes nor Python's own."""
        save(store, "r", 1, state_at(1))
        for path in (tmp_path / "store").rglob("*"):
            if path.is_file():
                body = path.read_bytes()
                assert b"PK\x03\x04" not in body, path
                assert not body.startswith(b"\x80"), path

    def test_a_quantized_tensor_is_refused_by_name(self, store):
        """Its numbers would be lost."""
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=".*quantize.*")
            quantized = torch.quantize_per_tensor(torch.ones(4), 0.1, 0, torch.qint8)
        with pytest.raises(CheckpointException) as caught:
            save(store, "r", 1, {"q": quantized})
        assert "q" in failure(caught).message

    def test_a_sparse_tensor_is_refused_by_name(self, store):
        """It has no row-major bytes."""
        with pytest.raises(CheckpointException) as caught:
            save(store, "r", 1, {"s": torch.eye(3).to_sparse()})
        assert isinstance(failure(caught), UnsupportedLeaf)


class TestPlanners:
    def test_a_planner_without_flattening(self, store):
        """Names are keys then, and dicts are objects."""
        state = {"a.b": torch.ones(2), "c": {"d": 1}}
        save(store, "r", 1, state, planner=DefaultSavePlanner(flatten_state_dict=False))
        found = load(
            store,
            "r",
            {"a.b": torch.zeros(2), "c": None},
            planner=DefaultLoadPlanner(flatten_state_dict=False),
        )
        assert torch.equal(found["a.b"], state["a.b"])

    def test_a_planner_that_renames(self, store):
        """What it calls things is what they are called."""

        class Rename(DefaultSavePlanner):
            def set_up_planner(self, state_dict, storage_meta=None, is_coordinator=False):
                renamed = {f"foo_{key}": value for key, value in state_dict.items()}
                super().set_up_planner(renamed, storage_meta, is_coordinator)

        save(store, "r", 1, {"a": torch.ones(2)}, planner=Rename())
        assert load(store, "r", {"foo_a": torch.zeros(2)})["foo_a"].sum() == 2

    def test_a_planner_that_changes_tensors(self, store):
        """With properties and data in agreement it is stored; else refused by name."""

        class Halves(DefaultSavePlanner):
            def create_local_plan(self):
                plan = super().create_local_plan()
                for item in plan.items:
                    if self.agrees and item.tensor_data is not None:
                        item.tensor_data.properties.dtype = torch.float16
                return plan

            def resolve_data(self, item):
                found = super().resolve_data(item)
                return found if isinstance(found, io.BytesIO) else found.to(torch.float16)

        planner = Halves()
        planner.agrees = True
        save(store, "r", 1, {"a": torch.ones(2), "n": 3}, planner=planner)
        found = es.load(store, "r")
        assert found["a"].dtype is torch.float16
        assert found["n"] == 3
        planner.agrees = False
        with pytest.raises(CheckpointException) as caught:
            save(store, "r", 2, {"a": torch.ones(2)}, planner=planner)
        assert isinstance(failure(caught), SaveFailed)

    def test_bytes_of_a_planner_are_read_with_weights_only(self, store):
        """What it pickled of its own is refused, unexecuted."""

        class Own(DefaultSavePlanner):
            def transform_object(self, item, value):
                return super().transform_object(item, Config() if value == "config" else value)

        save(store, "r", 1, {"n": 3}, planner=Own())
        assert es.load(store, "r")["n"] == 3
        with pytest.raises(CheckpointException) as caught:
            save(store, "r", 2, {"n": "config"}, planner=Own())
        assert isinstance(failure(caught), UnsupportedLeaf)

    def test_plans_that_are_cached(self, store):
        """DCP then hands over what it had the first time; the save is the new one all the same."""
        writer = StorageWriter(store, "r")
        for step in (1, 2, 3):
            writer.step = step
            planner = DefaultSavePlanner(enable_plan_caching=True)
            with quiet():
                dcp.save({"a": torch.tensor(step)}, storage_writer=writer, planner=planner, no_dist=True)
        for step in (1, 2, 3):
            assert load(store, "r", {"a": torch.tensor(0)}, step=step)["a"] == step

    def test_a_name_with_two_meanings_is_refused(self, store):
        """A Checkpointer may hold both ``a/b.c`` and ``a.b/c``; DCP cannot tell them apart."""
        with es.Checkpointer(store, "r") as ckpt:
            ckpt.save(1, {"a": {"b.c": torch.ones(1)}, "a.b": {"c": torch.ones(1)}}).wait()
        with pytest.raises(RestoreError, match=r"a\.b\.c"):
            StorageReader(store, "r").read_metadata()
