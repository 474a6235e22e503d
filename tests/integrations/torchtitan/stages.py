# ruff: noqa: D103 - a program
"""One rank of a pipeline of torchtitan's parts, over gloo: two stages, each sharded by FSDP2 over the other ranks.

Environment: FOLDER, STAGES (one or two), STEPS; THEIRS, to save with torchtitan's own manager; INITIAL, a folder to
begin from; SEED, to save a seed checkpoint and end. Prints ``begins STEP`` and, for each tensor of the model and the
optimizers, ``tensor begin|end NAME DIGEST``.
"""

import hashlib
import os
import sys
import warnings

import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torchtitan.components.checkpointer import CheckpointManager as TheirManager

from everstep.integrations.torchtitan import CheckpointManager
from tests.integrations.torchtitan.parts import Layers, MiniTrainer

# a model part for each rank's stages; with one stage all of it, with two the first rank's has two parts
CUTS = {1: [[(0, 1, 2)]], 2: [[(0,), (2,)], [(1,)]]}


def say(line):
    """In one piece, between those of other ranks."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def tell(trainer, when):
    for name, value in sorted(trainer.tensors().items()):
        content = hashlib.sha256(value.detach().contiguous().numpy().tobytes()).hexdigest()
        say(f"tensor {when} {name} {content}")


def main():
    warnings.simplefilter("ignore")
    dist.init_process_group("gloo")
    stages = int(os.environ["STAGES"])
    mesh = init_device_mesh("cpu", (stages, dist.get_world_size() // stages), mesh_dim_names=("pp", "dp"))
    parts = [Layers(numbers) for numbers in CUTS[stages][mesh["pp"].get_local_rank()]]
    for part in parts:
        fully_shard(part, mesh=mesh["dp"])
    if os.environ.get("THEIRS"):
        config = TheirManager.Config(enable=True, interval=2, last_save_model_only=False)
    else:
        initial = os.environ.get("INITIAL")
        config = CheckpointManager.Config(
            enable=True, interval=2, initial_load_path=initial, initial_load_model_only=False
        )
    trainer = MiniTrainer(
        config,
        os.environ["FOLDER"],
        steps=int(os.environ["STEPS"]),
        parts=parts,
        data_rank=mesh["dp"].get_local_rank(),
        data_ranks=mesh["dp"].size(),
    )
    if os.environ.get("SEED"):
        trainer.checkpointer.save(0, last_step=True)
        trainer.checkpointer.close()
        return
    loaded = trainer.load()
    say(f"begins {trainer.step}")
    if loaded:
        tell(trainer, "begin")
    trainer.train()
    tell(trainer, "end")
    trainer.checkpointer.close()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
