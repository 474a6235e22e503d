# ruff: noqa: D103, D106 - a program
"""One rank of a training by torchtitan's own trainer: a llama of two layers, on CPU over gloo.

What torchtitan 0.3.0 asks of a GPU and of a newer torch is answered here; what it does is its own.
Environment: FOLDER, STEPS, TP (degree of tensor parallelism), STOP ("RANK:STEP": who gets SIGTERM, in which step), EXCLUDE.
Prints, on rank 0: ``loaded STEP POSITION DIGEST`` and ``ended ...``, POSITION being that of its data; on each rank: ``rank RANK exits CODE``.
"""

import hashlib
import os
import signal
import sys
import types
from dataclasses import dataclass
from pathlib import Path

import torch
import torch._utils

torch._utils._get_available_device_type = lambda: "cpu"
torch.cpu.current_device = lambda: 0
torch.cpu.empty_cache = torch.cpu.reset_peak_memory_stats = lambda: None
torch.cpu.get_device_name = lambda _device=None: "cpu"
torch.cpu.get_device_properties = lambda _device=None: types.SimpleNamespace(total_memory=2**34)
torch.cpu.memory_stats = lambda _device=None: {}

import torchtitan.distributed.utils  # noqa: E402 - it looks for a GPU when it is imported

torchtitan.distributed.utils.set_pg_timeouts = lambda *_, **__: None  # needs a newer torch than it asks for

import torch.distributed as dist  # noqa: E402
from torch.distributed.fsdp import FSDPModule  # noqa: E402
from torch.distributed.tensor import DTensor  # noqa: E402
from torch.utils.data import IterableDataset  # noqa: E402
from torchtitan.components.dataloader import ParallelAwareDataloader  # noqa: E402
from torchtitan.components.loss import CrossEntropyLoss  # noqa: E402
from torchtitan.components.metrics import MetricsProcessor  # noqa: E402
from torchtitan.components.optimizer import LRSchedulersContainer, default_adamw  # noqa: E402
from torchtitan.components.tokenizer import BaseTokenizer  # noqa: E402
from torchtitan.config import ParallelismConfig, TrainingConfig  # noqa: E402
from torchtitan.models.common.attention import ScaledDotProductAttention  # noqa: E402
from torchtitan.models.llama3 import model_registry  # noqa: E402
from torchtitan.tools.logging import init_logger  # noqa: E402
from torchtitan.trainer import Trainer  # noqa: E402

from everstep.integrations.torchtitan import CheckpointManager  # noqa: E402

LENGTH = 32
TEXT = Path(__file__).read_bytes() * 16


class Letters(BaseTokenizer):
    @dataclass(kw_only=True, slots=True)
    class Config(BaseTokenizer.Config):
        pass

    def __init__(self, config, *, tokenizer_path):
        super().__init__()

    def encode(self, text):
        return list(text.encode())

    def decode(self, tokens):
        return bytes(tokens).decode()

    def get_vocab_size(self):
        return 256


class Text(IterableDataset):
    """This file, in pieces: a data-parallel rank reads each ``world``-th."""

    def __init__(self, rank, world):
        self.at, self.world = rank, world

    def __iter__(self):
        while True:
            start = self.at * LENGTH % (len(TEXT) - LENGTH - 1)
            tokens = torch.tensor(list(TEXT[start : start + LENGTH + 1]))
            self.at += self.world
            yield {"input": tokens[:-1], "positions": torch.arange(LENGTH)}, tokens[1:]

    def state_dict(self):
        return {"at": self.at}

    def load_state_dict(self, state):
        self.at = state["at"]


class Loader(ParallelAwareDataloader):
    @dataclass(kw_only=True, slots=True)
    class Config(ParallelAwareDataloader.Config):
        pass

    def __init__(self, config, *, dp_rank, dp_world_size, local_batch_size, snapshot_every_n_steps=1, **_):
        super().__init__(
            Text(dp_rank, dp_world_size),
            dp_rank=dp_rank,
            dp_world_size=dp_world_size,
            batch_size=local_batch_size,
            snapshot_every_n_steps=snapshot_every_n_steps,
        )


class Stopped(Trainer):
    """The trainer, and a SIGTERM in the middle of one rank's step."""

    @dataclass(kw_only=True, slots=True)
    class Config(Trainer.Config):
        pass

    def forward_backward_step(self, **batch):
        if os.environ.get("STOP") == f"{dist.get_rank()}:{self.step}":
            os.kill(os.getpid(), signal.SIGTERM)
        return super().forward_backward_step(**batch)


def small():
    """Torchtitan's debug model with two layers, an attention that runs on CPU, and sums that gloo can do."""
    spec = model_registry("debugmodel", attn_backend="flex")
    spec.model.layers = spec.model.layers[:2]
    for layer in spec.model.layers:
        layer.attention.inner_attention = ScaledDotProductAttention.Config()
    its_own = spec.parallelize_fn

    def parallelize(model, **how):
        made = its_own(model, **how)
        for part in made.modules():
            if isinstance(part, FSDPModule):
                part.set_force_sum_reduction_for_comms(True)
        return made

    spec.parallelize_fn = parallelize
    return spec


def digest(trainer):
    """Of the parameters and the optimizer's state, whole."""
    found = hashlib.sha256()
    states = trainer.checkpointer.states
    for name, value in {**states["model"].state_dict(), **states["optimizer"].state_dict()}.items():
        whole = value.full_tensor() if isinstance(value, DTensor) else value
        if isinstance(whole, torch.Tensor):
            found.update(f"{name} {whole.dtype} {tuple(whole.shape)}".encode())
            found.update(whole.detach().contiguous().numpy().tobytes())
    return found.hexdigest()


def say(line):
    """In one piece, between those of other ranks."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def told(trainer, what):
    """Say on rank 0 where the training is."""
    content = digest(trainer)
    if dist.get_rank() == 0:
        say(f"{what} {trainer.step} {trainer.dataloader.dataset.at} {content}")


def main():
    init_logger()
    config = Stopped.Config(
        model_spec=small(),
        loss=CrossEntropyLoss.Config(),
        tokenizer=Letters.Config(),
        dataloader=Loader.Config(),
        optimizer=default_adamw(lr=8e-4),
        lr_scheduler=LRSchedulersContainer.Config(warmup_steps=2, total_steps=100),
        training=TrainingConfig(
            local_batch_size=2,
            seq_len=LENGTH,
            steps=int(os.environ["STEPS"]),
            disable_cuda_graphs=True,
            mixed_precision_param="float32",
        ),
        metrics=MetricsProcessor.Config(log_freq=1),
        parallelism=ParallelismConfig(
            tensor_parallel_degree=int(os.environ.get("TP", "1")), spmd_backend="partial_dtensor"
        ),
        checkpoint=CheckpointManager.Config(
            enable=True,
            interval=4,
            exclude_from_loading=os.environ.get("EXCLUDE", "").split(),
        ),
        activation_checkpoint=None,
        dump_folder=os.environ["FOLDER"],
    )
    trainer = config.build()
    load = trainer.checkpointer.load

    def loaded(step=-1):
        found = load(step)
        if found:
            told(trainer, "loaded")
        return found

    trainer.checkpointer.load = loaded
    code = 0
    try:
        trainer.train()
    except SystemExit as stop:
        code = stop.code
    told(trainer, "ended")
    say(f"rank {dist.get_rank()} exits {code}")
    trainer.close()
    dist.destroy_process_group()
    sys.exit(code)


if __name__ == "__main__":
    main()
