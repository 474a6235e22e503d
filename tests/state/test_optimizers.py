"""torch optimizers: the next step after a restore is the step that would have been."""

import copy

import pytest
import torch

from everstep.errors import RestoreMismatch
from everstep.state import match
from tests.state.moving import fill, restored, saved


class Factored(torch.optim.Optimizer):
    """Like Adafactor: factored second moments of other shapes than the parameter's, fp32 for bf16, plain numbers."""

    def __init__(self, params, lr=0.1):
        super().__init__(params, {"lr": lr, "betas": (0.9, None), "name": "factored"})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                state = self.state[p]
                square = p.grad.float() ** 2
                if not state:
                    state.update(
                        step=0,
                        row=torch.zeros(p.shape[:1]),
                        column=torch.zeros(p.shape[-1:]),
                        mask=torch.zeros(p.shape, dtype=torch.bool),
                        scale=(1.0, [2, None]),
                    )
                state["step"] += 1
                state["row"] += square.reshape(p.shape[0], -1).sum(1)
                state["column"] += square.reshape(-1, p.shape[-1]).sum(0)
                state["mask"] |= p.grad > 0
                p.sub_(group["lr"] * p.grad / (1 + state["row"].sum().sqrt()).to(p.dtype))


MAKERS = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.1),
    "momentum": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True),
    "adam": lambda p: torch.optim.Adam(p, lr=0.01, amsgrad=True, foreach=True),
    "adamw": lambda p: torch.optim.AdamW(p, lr=0.01),
    "fused": lambda p: torch.optim.AdamW(p, lr=0.01, fused=True),
    "capturable": lambda p: torch.optim.NAdam(p, lr=0.01),
    "tensor lr": lambda p: torch.optim.Adam(p, lr=torch.tensor(0.01)),
    "adafactor": lambda p: torch.optim.Adafactor(p, lr=0.01),
    "lbfgs": lambda p: torch.optim.LBFGS(p, lr=0.1, max_iter=2),
    "rprop": torch.optim.Rprop,
    "factored": Factored,
    "groups": lambda p: torch.optim.AdamW(
        [
            {"params": [q for q in p if q.ndim > 1], "lr": 0.1},
            {"params": [q for q in p if q.ndim < 2], "weight_decay": 0.0},
        ]
    ),
}


def world(name, dtype=torch.float32):
    """A small model with an optimizer."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh(), torch.nn.Linear(4, 2)).to(dtype)
    return {"model": model, "opt": MAKERS[name](list(model.parameters()))}


def train(state, steps, seed):
    """Some steps on random batches."""
    generator = torch.Generator().manual_seed(seed)
    dtype = next(state["model"].parameters()).dtype
    for _ in range(steps):
        x = torch.randn(5, 3, generator=generator).to(dtype)

        def closure(x=x):
            state["opt"].zero_grad()
            loss = (state["model"](x) ** 2).sum()
            loss.backward()
            return loss

        if isinstance(state["opt"], torch.optim.LBFGS):
            state["opt"].step(closure)
        else:
            closure()
            state["opt"].step()


def weights(state):
    """All parameters as one tensor."""
    return torch.cat([p.detach().float().flatten() for p in state["model"].parameters()])


@pytest.mark.parametrize("used", [0, 2], ids=["fresh", "used"])
@pytest.mark.parametrize("name", MAKERS)
def test_training_goes_on_bit_for_bit(name, used):
    """After a restore into a new or a used optimizer, three more steps give the same bits as without it."""
    source = world(name)
    train(source, 3, seed=1)
    entries, kept = saved(source)
    train(source, 3, seed=2)
    live = world(name)
    train(live, used, seed=9)
    fill(match(live, entries), kept)
    train(live, 3, seed=2)
    assert torch.equal(weights(live), weights(source))


@pytest.mark.parametrize("name", ["factored", "adamw"])
def test_state_of_another_type_than_the_parameter_is_not_cast(name):
    """fp32 moments and bool masks of bf16 parameters stay as they are; torch alone would cast them."""
    source = world(name, torch.bfloat16)
    train(source, 2, seed=1)
    live = world(name, torch.bfloat16)
    if name == "adamw":
        for state in source["opt"].state.values():
            state["exp_avg"] = state["exp_avg"].float() + 1e-5
    restored(source, live)
    for one, other in zip(source["opt"].state.values(), live["opt"].state.values(), strict=True):
        for key, value in one.items():
            if isinstance(value, torch.Tensor):
                assert other[key].dtype == value.dtype
                assert torch.equal(other[key], value)
            else:
                assert other[key] == value
                assert type(other[key]) is type(value)


def test_state_that_is_there_is_filled_in_place():
    """A used optimizer's moments keep their memory, so that a restore needs no second copy of them."""
    source, live = world("adamw"), world("adamw")
    train(source, 2, seed=1)
    train(live, 1, seed=2)
    before = [state["exp_avg"].data_ptr() for state in live["opt"].state.values()]
    restored(source, live)
    assert [state["exp_avg"].data_ptr() for state in live["opt"].state.values()] == before
    assert all(
        torch.equal(a["exp_avg"], b["exp_avg"])
        for a, b in zip(source["opt"].state.values(), live["opt"].state.values(), strict=True)
    )


def test_groups_keep_their_types():
    """Tuples, None, flags and tensors in the groups of parameters come back as what they were."""
    source = world("tensor lr")
    train(source, 1, seed=1)
    source["opt"].param_groups[0]["lr"].mul_(3)
    live = world("tensor lr")
    expected = copy.deepcopy(source["opt"].state_dict()["param_groups"])
    restored(source, live)
    found = live["opt"].state_dict()["param_groups"]
    assert found == expected
    assert isinstance(found[0]["lr"], torch.Tensor)
    assert isinstance(found[0]["betas"], tuple)
    assert found[0]["fused"] is None


def test_other_groups_are_a_mismatch():
    """Other parameters, or the same in other groups, are told by name before anything changes."""
    source, live = world("groups"), world("groups")
    parameters = list(live["model"].parameters())
    live["opt"] = torch.optim.AdamW([{"params": parameters[:2]}, {"params": parameters[3:]}])
    with pytest.raises(RestoreMismatch) as caught:
        restored(source, live)
    assert "opt has the parameter 2.weight in the checkpoint and not in the state" in str(caught.value)
    assert "opt has the parameter 0.bias in group 0 in the state and 1 in the checkpoint" in str(caught.value)
    with pytest.raises(RestoreMismatch, match=r"has the parameter 2.weight in the state and not in"):
        restored(live, source)
    live["opt"] = torch.optim.AdamW(parameters)
    with pytest.raises(RestoreMismatch, match="opt has 1 parameter groups in the state and 2 in"):
        restored(source, live)


def test_a_part_of_an_optimizer_cannot_be_skipped():
    """An object's state is whole; the whole can be skipped."""
    source, live = world("adamw"), world("adamw")
    train(source, 1, seed=1)
    with pytest.raises(RestoreMismatch, match="restored whole or skipped whole"):
        restored(source, live, strict=False, skip=["opt/state/0.weight/*"])
    coverage = restored(source, live, strict=False, skip=["opt"])
    assert coverage.skipped == ("opt",)
    assert not live["opt"].state
