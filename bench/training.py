"""A training state of the size of GPT-2 small: 124 M parameters in fp32, with Adam 1.49 GB."""

import torch
from torch import nn

__all__ = ["Training", "make_training"]


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.ln_1, self.ln_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)


class Network(nn.Module):
    def __init__(self, width, layers, vocabulary):
        super().__init__()
        self.tokens, self.places = nn.Embedding(vocabulary, width), nn.Embedding(1024, width)
        self.blocks = nn.ModuleList(Block(width) for _ in range(layers))
        self.ln = nn.LayerNorm(width)


class Training:
    """A model and its optimizer, whose state is there; ``change`` alters every byte that a step alters."""

    def __init__(self, width, layers, vocabulary):
        torch.manual_seed(0)
        self.model = Network(width, layers, vocabulary)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-3)
        for parameter in self.model.parameters():
            parameter.grad = torch.randn_like(parameter)
        self.optimizer.step()
        self.optimizer.zero_grad()

    def tensors(self):
        """Every tensor by name: parameters and moments."""
        found = {f"model.{name}": tensor for name, tensor in self.model.state_dict().items()}
        for number, moments in self.optimizer.state_dict()["state"].items():
            found |= {f"optimizer.{number}.{name}": tensor for name, tensor in moments.items()}
        return found

    @property
    def nbytes(self):
        return sum(tensor.nbytes for tensor in self.tensors().values())

    def change(self):
        with torch.no_grad():
            for tensor in self.tensors().values():
                tensor.add_(1e-3)


def make_training(*, quick):
    return Training(256, 4, 10_000) if quick else Training(768, 12, 50_257)
