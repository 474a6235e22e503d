"""A training saved on some ranks in one of torch's ways, restored on others in another, bit for bit."""

import pytest
import torch

import everstep as es
from tests.checkpointer.launches import told
from tests.checkpointer.rank_models import Net

HERE = "tests.checkpointer.rank_models"
SAVED = {1: ["plain"], 2: ["ddp"], 3: ["fsdp"], 4: ["tp", "fsdp+tp", "hsdp"]}
RUNS = [f"{way.replace('+', '-')}{world}" for world, ways in SAVED.items() for way in ways]


@pytest.mark.parametrize(
    "ways_of",
    [
        {1: ["plain"], 2: ["fsdp"], 4: ["tp", "fsdp+tp"]},
        pytest.param(
            {2: ["tp"], 3: ["ddp", "tp"], 4: ["fsdp", "hsdp"], 8: ["hsdp+tp"]}, marks=pytest.mark.more
        ),
    ],
    ids=["some", "others"],
)
def test_a_training_in_other_hands(zygote, tmp_path, ways_of):
    """Every run in every way, into optimizers with and without moments: parameters, moments, schedules, ties."""
    folder = str(tmp_path / "store")
    for world, ways in SAVED.items():
        assert told(zygote, f"{HERE}:saved", folder, ways, world=world) == ["saved"]
    for world, ways in ways_of.items():
        assert told(zygote, f"{HERE}:restored", folder, RUNS, ways, world=world) == ["done"]
    for run in RUNS:
        check_loaded(es.load(folder, run))


def check_loaded(state):
    """Without torch.distributed: whole tensors, and moments by the names of parameters."""
    assert not torch.distributed.is_initialized()
    net, optimizer = Net(7), state["optimizer"]
    for name, parameter in net.state_dict().items():
        assert torch.equal(state["model"][name], parameter), name
    names = optimizer["param_groups"][0]["param_names"]
    moments = {names[number]: held for number, held in optimizer["state"].items()}
    for name, parameter in net.named_parameters():
        held = moments[name]
        assert torch.equal(held["exp_avg"], parameter * 2 + 1), name
        assert torch.equal(held["exp_avg_sq"], parameter * parameter), name
