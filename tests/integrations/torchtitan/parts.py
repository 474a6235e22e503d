"""A trainer of torchtitan's parts, without its launch: torchtitan's containers, loader and states, and a small model."""

from types import SimpleNamespace

import torch
from torch import nn
from torch.utils.data import IterableDataset
from torchtitan.components.dataloader import ParallelAwareDataloader
from torchtitan.components.optimizer import LRSchedulersContainer, OptimizersContainer, ParamGroupConfig

from everstep.integrations.torchtitan import CheckpointManager

__all__ = ["Layers", "MiniTrainer", "Rename"]

OPTIMIZER = OptimizersContainer.Config(
    implementation="for-loop",
    param_groups=[
        ParamGroupConfig(pattern=r"bias$", optimizer_name="Adam", optimizer_kwargs={"lr": 1e-2}),
        ParamGroupConfig(
            pattern=r".*", optimizer_name="AdamW", optimizer_kwargs={"lr": 1e-3, "betas": (0.9, 0.95)}
        ),
    ],
)


class Layers(nn.Module):
    """Some layers of a model of three, under the names they have in the whole."""

    def __init__(self, numbers=(0, 1, 2)):
        super().__init__()
        # the same start, whatever layers there are
        self.layers = nn.ModuleDict()
        for number in numbers:
            torch.manual_seed(number)
            self.layers[str(number)] = nn.Linear(6, 6)

    def forward(self, hidden):
        """Through all layers that are here."""
        for layer in self.layers.values():
            hidden = torch.tanh(layer(hidden))
        return hidden


class Numbers(IterableDataset):
    """Random rows, by a counter."""

    def __init__(self, rank):
        self.rank, self.at = rank, 0

    def __iter__(self):
        while True:
            chance = torch.Generator().manual_seed(1000 * self.rank + self.at)
            self.at += 1
            yield torch.randn(6, generator=chance)

    def state_dict(self):
        """The counter."""
        return {"at": self.at}

    def load_state_dict(self, state):
        """Go on there."""
        self.at = state["at"]


class Rename:
    """An adapter to names of another tool, as torchtitan's models have one."""

    fqn_to_index_mapping = None

    def __init__(self, assets):
        self.hf_assets_path = assets

    def to_hf(self, state):
        """Their names."""
        return {f"model.{name}": value for name, value in state.items()}

    def from_hf(self, state):
        """Those of torchtitan."""
        return {name.removeprefix("model."): value for name, value in state.items()}

    def get_hf_storage_reader(self, path, _quantized=False):
        """The reader that torch has."""
        from torch.distributed.checkpoint import HuggingFaceStorageReader

        return HuggingFaceStorageReader(path)


class MiniTrainer:
    """What `torchtitan.trainer.Trainer` does around its checkpointer, in the same order.

    ``manager`` None: without checkpoints.
    """

    def __init__(
        self, manager, folder, *, steps=6, parts=None, data_rank=0, data_ranks=1, states=(), adapter=None
    ):
        self.config = SimpleNamespace(training=SimpleNamespace(steps=steps))
        self.step = self.ntokens_seen = 0
        self.model_parts = [Layers()] if parts is None else parts
        self.optimizers = OPTIMIZER.build(model_parts=self.model_parts)
        self.lr_schedulers = LRSchedulersContainer.Config(warmup_steps=2, total_steps=100).build(
            optimizers=self.optimizers, training_steps=steps
        )
        self.loader = ParallelAwareDataloader(
            Numbers(data_rank), dp_rank=data_rank, dp_world_size=data_ranks, batch_size=4
        )
        self.checkpointer = (manager or CheckpointManager.Config(enable=False)).build(
            dataloader=self.loader,
            model_parts=self.model_parts,
            optimizers=self.optimizers,
            lr_schedulers=self.lr_schedulers,
            states={"train_state": self, **dict(states)},
            sd_adapter=adapter,
            base_folder=str(folder),
        )

    def state_dict(self):
        """As torchtitan's trainer."""
        return {"step": self.step, "ntokens_seen": self.ntokens_seen}

    def load_state_dict(self, state):
        """As torchtitan's trainer."""
        self.step, self.ntokens_seen = state["step"], state["ntokens_seen"]

    def load(self, step=-1):
        """Load, and whether there was something."""
        return self.checkpointer.load(step=step)

    def train(self, until=None):
        """The steps that are left; the steps at which the checkpointer saved."""
        saved = []
        batches = iter(self.loader)
        while self.step < (until or self.config.training.steps):
            self.step += 1
            batch = next(batches)
            self.ntokens_seen += batch.numel()
            self.optimizers.zero_grad()
            for part in self.model_parts:
                part(batch).square().mean().backward()
            self.checkpointer.maybe_wait_for_staging()
            self.optimizers.step()
            self.lr_schedulers.step()
            if self.checkpointer.save(self.step, last_step=self.step == self.config.training.steps):
                saved.append(self.step)
        return saved

    def tensors(self):
        """Every tensor of the model and the optimizers, by name; sharded ones whole."""
        held = {name: value for part in self.model_parts for name, value in part.state_dict().items()}
        for optimizer in self.optimizers:
            for group in optimizer.param_groups:
                for name, parameter in zip(group["param_names"], group["params"], strict=True):
                    held |= {
                        f"{name}/{what}": value for what, value in optimizer.state.get(parameter, {}).items()
                    }
        return {
            name: getattr(value, "full_tensor", lambda value=value: value)().clone()
            for name, value in held.items()
        }
