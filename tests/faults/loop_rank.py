# ruff: noqa: D103, T201 - a program
"""One rank of the training of lightning_rank.py under `Checkpointer.loop`: DDP over gloo on CPU.

The arguments are the store and the number of steps. Prints its steps.
"""

import sys
import time

import torch
import torch.distributed as dist
from torch import nn

import everstep as es


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model = nn.parallel.DistributedDataParallel(nn.Linear(16, 4))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    state = {"model": model, "optimizer": optimizer}
    with es.Checkpointer(sys.argv[1], "contrast", every=1_000_000) as ckpt:
        for step in ckpt.loop(state, until=int(sys.argv[2])):
            print("step", step + 1, flush=True)
            time.sleep(0.02)
            chance = torch.Generator().manual_seed(2 * step + dist.get_rank())
            images, labels = torch.randn(8, 16, generator=chance), torch.randint(0, 4, (8,), generator=chance)
            loss = nn.functional.cross_entropy(model(images), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
