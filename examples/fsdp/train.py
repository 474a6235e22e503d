"""Trains a small transformer on handwritten digits, sharded by FSDP2 over any number of ranks.

torchrun --nproc-per-node 4 examples/fsdp/train.py   # send SIGTERM to any one worker: all save the same step
torchrun --nproc-per-node 2 examples/fsdp/train.py   # goes on at that step, on two ranks
"""

import argparse
import hashlib
import logging
import os

import torch
import torch.distributed as dist
from sklearn.datasets import load_digits
from torch import nn
from torch.distributed.fsdp import fully_shard

import everstep as es

log = logging.getLogger("fsdp")


class Reader(nn.Module):
    """Reads an image of 8 x 8 pixels row by row."""

    def __init__(self, width=64):
        super().__init__()
        self.embed = nn.Linear(8, width)
        self.place = nn.Parameter(0.02 * torch.randn(8, width))
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(width, nhead=4, dim_feedforward=4 * width, batch_first=True)
            for _ in range(2)
        )
        self.head = nn.Linear(width, 10)

    def forward(self, images):
        hidden = self.embed(images) + self.place
        for layer in self.layers:
            hidden = layer(hidden)
        return self.head(hidden.mean(1))


def batch_of(step, data, size=64):
    """This rank's share of a step's images: the step alone says which, on any number of ranks."""
    chosen = torch.randint(len(data.images), (size,), generator=torch.Generator().manual_seed(step))
    mine = chosen[dist.get_rank() :: dist.get_world_size()]
    images = torch.tensor(data.images[mine], dtype=torch.float32) / 16
    return images, torch.tensor(data.target[mine])


def fingerprint(model):
    """Of all parameters, whole."""
    whole = [each.full_tensor() for each in model.parameters()]
    return hashlib.sha256(b"".join(each.detach().numpy().tobytes() for each in whole)).hexdigest()[:16]


def main():
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--store", default=os.environ.get("EVERSTEP_STORE", "./checkpoints"))
    options.add_argument("--run", default=os.environ.get("EVERSTEP_RUN", "fsdp"))
    options.add_argument("--steps", type=int, default=400)
    options.add_argument("--every", default="50 steps")
    chosen = options.parse_args()
    dist.init_process_group("gloo")
    logging.basicConfig(level=logging.WARNING if dist.get_rank() else logging.INFO, format="%(message)s")
    torch.set_num_threads(1)

    torch.manual_seed(0)
    model = Reader()
    for layer in model.layers:
        fully_shard(layer)
    fully_shard(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    torch.manual_seed(dist.get_rank())  # each rank drops other activations
    state = {"model": model, "optimizer": optimizer, "rng": es.PerRank(es.RNG())}
    data = load_digits()

    with es.Checkpointer(chosen.store, chosen.run, every=chosen.every) as ckpt:
        for count, step in enumerate(ckpt.loop(state, until=chosen.steps)):
            if count == 0:
                log.info("step %d: begins with parameters %s", step, fingerprint(model))
            images, labels = batch_of(step, data)
            loss = nn.functional.cross_entropy(model(images), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            ckpt.log(loss=loss)
            if (step + 1) % 20 == 0:
                log.info("step %d: loss %.4f", step + 1, loss.item())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
