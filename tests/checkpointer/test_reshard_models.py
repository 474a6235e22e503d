"""A training saved on some ranks in one of torch's ways, restored on others in another, bit for bit."""

import pytest
import torch

import everstep as es
from tests.checkpointer.launches import told
from tests.checkpointer.rank_models import Net

HERE = "tests.checkpointer.rank_models"
SAVED = {1: ["plain"], 2: ["ddp"], 3: ["fsdp"], 4: ["tp", "fsdp+tp", "hsdp"]}
RUNS = [f"{way.replace('+', '-')}{world}" for world, ways in SAVED.items() for way in ways]


@pytest.fixture(scope="module")
def store(zygote, tmp_path_factory):
    """One run for each way and number of ranks."""
    folder = str(tmp_path_factory.mktemp("reshard") / "store")
    for world, ways in SAVED.items():
        assert told(zygote, f"{HERE}:saved", folder, ways, world=world) == ["saved"]
    return folder


@pytest.mark.parametrize(
    ("world", "ways"),
    [
        (1, ["plain"]),
        (2, ["fsdp"]),
        (4, ["tp", "fsdp+tp"]),
        pytest.param(3, ["ddp", "tp"], marks=pytest.mark.more),
        pytest.param(4, ["fsdp", "hsdp"], marks=pytest.mark.more),
        pytest.param(8, ["hsdp+tp"], marks=pytest.mark.more),
    ],
)
def test_a_training_in_other_hands(zygote, store, world, ways):
    """Every run in every way, into optimizers with and without moments: parameters, moments, schedules, ties."""
    assert told(zygote, f"{HERE}:restored", store, RUNS, ways, world=world) == ["done"]


@pytest.mark.parametrize("run", RUNS)
def test_a_training_loaded_in_one_process(store, run):
    """Without torch.distributed: whole tensors, and moments by the names of parameters."""
    assert not torch.distributed.is_initialized()
    state, net = es.load(store, run), Net(7)
    for name, parameter in net.state_dict().items():
        assert torch.equal(state["model"][name], parameter), name
    optimizer = state["optimizer"]
    names = optimizer["param_groups"][0]["param_names"]
    moments = {names[number]: held for number, held in optimizer["state"].items()}
    for name, parameter in net.named_parameters():
        held = moments[name]
        assert torch.equal(held["exp_avg"], parameter * 2 + 1), name
        assert torch.equal(held["exp_avg_sq"], parameter * parameter), name
