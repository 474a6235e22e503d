"""Models that tests build again by name."""

import itertools

import torch


class Tied(torch.nn.Module):
    """An embedding tied to an output, and a buffer."""

    def __init__(self, words, width=4, *, bias=False):
        super().__init__()
        self.embed = torch.nn.Embedding(words, width)
        self.head = torch.nn.Linear(width, words, bias=bias)
        self.head.weight = self.embed.weight
        self.register_buffer("seen", torch.zeros((), dtype=torch.int64))


def build(sizes):
    """Linear layers between these widths."""
    return torch.nn.Sequential(*(torch.nn.Linear(a, b) for a, b in itertools.pairwise(sizes)))


def from_description(description):
    """A model of a framework's own configuration."""
    return build(description["sizes"])
