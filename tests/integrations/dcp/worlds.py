"""States and calls that the tests share."""

import warnings
from contextlib import contextmanager

import numpy as np
import torch
import torch.distributed.checkpoint as dcp

from everstep.integrations.dcp import StorageReader, StorageWriter

__all__ = ["emptied", "load", "quiet", "save", "state_at"]


@contextmanager
def quiet():
    """Without DCP's warning that this is one process: it is meant."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="torch.distributed is disabled")
        yield


def save(store, run, step, state, **options):
    """One save by a writer of its own; gives the writer."""
    writer = StorageWriter(store, run, step)
    with quiet():
        dcp.save(state, storage_writer=writer, no_dist=True, **options)
    return writer


def load(store, run, state, step=None, **options):
    """Load into a state; gives it."""
    with quiet():
        dcp.load(state, storage_reader=StorageReader(store, run, step), no_dist=True, **options)
    return state


def state_at(step):
    """A nested state: tensors of several types, and objects."""
    generator = torch.Generator().manual_seed(step)
    return {
        "model": {
            "embed.weight": torch.randn(64, 16, generator=generator),
            "head/bias": torch.randn(5, generator=generator).to(torch.bfloat16),
            "steps": torch.tensor(step),
            "none": torch.empty(0, 4),
        },
        "optimizer": {
            "state": {
                0: {"exp_avg": torch.randn(64, 16, generator=generator), "step": torch.tensor(float(step))}
            },
            "param_groups": [{"lr": 0.1 / (1 + step), "betas": (0.9, 0.999), "params": [0, 1]}],
        },
        "rng": (torch.arange(step % 7 + 2), np.arange(3), "MT19937"),
        "numbers": np.linspace(0, 1, 6).reshape(2, 3),
        "epoch": step // 10,
        "name": "näme",
        "raw": bytes(range(256)),
        "text": "long " * 2000,
        "nothing": None,
        "tags": {"a", "b"},
        "history": [1.0, 2.5, float("inf")],
    }


def emptied(value):
    """The same nesting, with zeros, and None for what is no tensor."""
    if isinstance(value, torch.Tensor):
        return torch.zeros_like(value)
    if isinstance(value, dict):
        return {key: emptied(item) for key, item in value.items()}
    if isinstance(value, list) and any(isinstance(item, dict | torch.Tensor) for item in value):
        return [emptied(item) for item in value]
    return None
