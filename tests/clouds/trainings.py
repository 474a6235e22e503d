"""A small torch training: its state, and what of it must come back."""

import random

import numpy as np
import torch

import everstep as es

__all__ = ["TRAINING", "equal", "step_of", "training"]


def training(seed: int = 0) -> dict[str, object]:
    """Model with dropout, Adam, scheduler, random generators: a few hundred kilobytes."""
    torch.manual_seed(seed)
    random.seed(seed)
    np.random.seed(seed)  # noqa: NPY002 - the generator that `es.RNG` keeps
    model = torch.nn.Sequential(torch.nn.Linear(32, 128), torch.nn.Dropout(0.1), torch.nn.Linear(128, 4))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    return {
        "model": model,
        "optimizer": optimizer,
        "scheduler": torch.optim.lr_scheduler.StepLR(optimizer, 5),
        "rng": es.PerRank(es.RNG()),
        "losses": [],
    }


def step_of(state: dict[str, object]) -> float:
    """One step on random numbers: wrong random states show in the loss."""
    state["optimizer"].zero_grad()
    loss = state["model"](torch.randn(8, 32)).square().mean()
    loss.backward()
    state["optimizer"].step()
    state["scheduler"].step()
    state["losses"] = [*state["losses"], loss.item()]
    return loss.item()


def equal(one: object, other: object) -> bool:
    """Whether two loaded states are the same to the bit, in shape and kind too."""
    if isinstance(one, torch.Tensor):
        return (
            isinstance(other, torch.Tensor)
            and one.dtype == other.dtype
            and one.shape == other.shape
            and one.contiguous()
            .reshape(-1)
            .view(torch.uint8)
            .equal(other.contiguous().reshape(-1).view(torch.uint8))
        )
    if isinstance(one, np.ndarray):
        return isinstance(other, np.ndarray) and one.dtype == other.dtype and np.array_equal(one, other)
    if isinstance(one, dict):
        return (
            isinstance(other, dict)
            and one.keys() == other.keys()
            and all(equal(one[k], other[k]) for k in one)
        )
    if isinstance(one, list | tuple):
        return type(one) is type(other) and len(one) == len(other) and all(map(equal, one, other))
    return type(one) is type(other) and bool(one == other)


TRAINING = """
    import sys, time, torch
    import everstep as es
    from everstep.events import Retried, SaveCommitted, SaveStaged
    from tests.clouds.trainings import step_of, training

    def listen(event):
        if isinstance(event, SaveStaged | SaveCommitted):
            print(type(event).__name__, event.step, flush=True)

    torch.set_num_threads(1)
    state = training()
    with es.Checkpointer(every=4, listener=listen) as ckpt:
        for step in ckpt.loop(state, until=20):
            ckpt.log(loss=step_of(state))
            time.sleep(float(sys.argv[1]))
"""
