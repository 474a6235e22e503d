# ruff: noqa: D103, T201 - a program
"""One rank of a training by Lightning: DDP over gloo on CPU, with Lightning's own handling of SIGTERM.

Saves on exceptions, which is how Lightning ends after a SIGTERM; the folder is the argument. Prints its steps.
"""

import sys
import time

import lightning
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.strategies import DDPStrategy
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Classifier(lightning.LightningModule):
    """A layer, and a step that takes its time."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(16, 4)

    def training_step(self, batch, _):
        time.sleep(0.02)
        return nn.functional.cross_entropy(self.layer(batch[0]), batch[1])

    def on_train_batch_end(self, *_):
        print("step", self.global_step, flush=True)

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=1e-3)


def main():
    torch.manual_seed(0)
    data = TensorDataset(torch.randn(4096, 16), torch.randint(0, 4, (4096,)))
    trainer = lightning.Trainer(
        accelerator="cpu",
        devices=2,
        strategy=DDPStrategy(process_group_backend="gloo"),
        max_steps=1_000_000,
        max_epochs=-1,
        callbacks=[ModelCheckpoint(sys.argv[1], save_on_exception=True, every_n_train_steps=1_000_000)],
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(Classifier(), DataLoader(data, batch_size=8))


if __name__ == "__main__":
    main()
