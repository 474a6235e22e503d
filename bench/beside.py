"""A training loop on one thread, alone and beside saves in the background."""

import statistics
import tempfile
import time

import torch

import everstep as es
from bench.training import make_training

__all__ = ["beside"]


def beside(where, quick):
    """Step time beside a save over step time alone: medians of steps; flat out, and paced for a save a minute."""
    torch.set_num_threads(1)
    training = make_training(quick=quick)
    state = {"model": training.model, "optimizer": training.optimizer}
    matrix = torch.randn(640, 640)

    def step():
        began = time.perf_counter()
        for _ in range(6):
            torch.mm(matrix, matrix)
        return time.perf_counter() - began

    for _ in range(20):
        step()
    alone, flat, paced = [], [], []
    with tempfile.TemporaryDirectory(dir=where, prefix="bench-") as folder:
        for number in range(1, 4):
            alone += [step() for _ in range(60)]
            training.change()
            with es.Checkpointer(folder, f"flat-{number}", listener=lambda _event: None) as ckpt:
                ckpt.restore(state)
                alone += [step() for _ in range(60)]
                flat += _during(ckpt.save(1, state), step)  # a first save by hand knows no interval: flat out
        with es.Checkpointer(folder, "paced", every="60s", listener=lambda _event: None) as ckpt:
            ckpt.restore(state)
            for number in range(1, 4):
                training.change()
                alone += [step() for _ in range(60)]
                paced += _during(ckpt.save(number, state), step)
    base = statistics.median(alone)
    return {
        "step_s": base,
        "flat_ratio": statistics.mean(flat) / base,
        "paced_ratio": statistics.mean(paced) / base,
        "flat_steps": len(flat),
        "paced_steps": len(paced),
    }


def _during(pending, step):
    times = []
    while not pending.done:
        times.append(step())
    pending.wait()
    return times
