"""Trains a small convolutional network on scikit-learn's handwritten digits, and can be stopped at any instant.

python examples/digits/train.py --store ./checkpoints --run digits   # run it again after any stop: it goes on
everstep drill -- python examples/digits/train.py                    # stops it many times, and proves it
"""

import argparse
import logging
import random

import numpy as np
import torch
from model import build_model
from sklearn.datasets import load_digits
from torch import nn
from torchdata.stateful_dataloader import StatefulDataLoader

import everstep as es

TRAINED_ON = 1437
log = logging.getLogger("digits")


class Digits(torch.utils.data.Dataset):
    """Images of 8 x 8 pixels; each is shifted and made noisy anew whenever a worker takes it."""

    def __init__(self):
        digits = load_digits()
        self.images = torch.tensor(digits.images, dtype=torch.float32).unsqueeze(1) / 16
        self.labels = torch.tensor(digits.target)

    def __len__(self):
        return TRAINED_ON

    def __getitem__(self, index):
        shift = torch.randint(-1, 2, (2,)).tolist()
        image = torch.roll(self.images[index], shift, dims=(1, 2))
        return image + 0.1 * torch.randn(image.shape), self.labels[index]

    def state_dict(self):
        """A worker's random state is part of the loader's position: the augmentation goes on bit for bit."""
        return {"rng": torch.get_rng_state()}

    def load_state_dict(self, state):
        torch.set_rng_state(state["rng"])


def endless(loader):
    while True:
        yield from loader


def accuracy(model, data):
    model.eval()
    with torch.no_grad():
        right = model(data.images[TRAINED_ON:]).argmax(1) == data.labels[TRAINED_ON:]
    model.train()
    return right.float().mean().item()


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    options.add_argument("--store", help="where checkpoints go (default: EVERSTEP_STORE)")
    options.add_argument("--run", help="the name of this training (default: EVERSTEP_RUN)")
    options.add_argument("--steps", type=int, default=400)
    options.add_argument("--every", default="20 steps")
    chosen = options.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(message)s")

    random.seed(0)
    np.random.seed(0)  # noqa: NPY002 - what others draw from the global generator is part of the run too
    torch.manual_seed(0)
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    data = Digits()
    order = torch.Generator().manual_seed(0)
    loader = StatefulDataLoader(data, batch_size=64, shuffle=True, num_workers=2, generator=order)
    model = build_model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=chosen.steps)
    state = {
        "model": model,
        "optimizer": optimizer,
        "scheduler": scheduler,
        "loader": es.PerRank(loader),
        "rng": es.PerRank(es.RNG()),
    }

    with es.Checkpointer(
        chosen.store,
        chosen.run,
        every=chosen.every,
        config={"steps": chosen.steps, "batch_size": 64, "lr": 3e-3},
        architecture=es.Architecture.of(model, factory="model:build_model"),
    ) as ckpt:
        batches = endless(loader)
        for step in ckpt.loop(state, until=chosen.steps):
            images, labels = next(batches)
            loss = nn.functional.cross_entropy(model(images), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            scheduler.step()
            ckpt.log(loss=loss)
            if (step + 1) % 100 == 0:
                ckpt.log(accuracy=accuracy(model, data))
                log.info("step %d: loss %.4f", step + 1, loss.item())
        log.info("accuracy on images not trained on: %.3f", accuracy(model, data))


if __name__ == "__main__":
    main()
