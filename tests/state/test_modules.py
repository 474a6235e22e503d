"""torch modules in place."""

import pytest
import torch

from everstep.errors import RestoreMismatch, UnsupportedLeaf
from everstep.state import flatten, match
from tests.state.moving import fill, loaded, restored, saved


class Block(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.attention = torch.nn.MultiheadAttention(width, 2, batch_first=True)
        self.norm = torch.nn.LayerNorm(width)
        self.mlp = torch.nn.Sequential(
            torch.nn.Linear(width, 4 * width), torch.nn.GELU(), torch.nn.Linear(4 * width, width)
        )

    def forward(self, x):
        x = x + self.attention(x, x, x, need_weights=False)[0]
        return x + self.mlp(self.norm(x))


class Transformer(torch.nn.Module):
    """A small language model with its output tied to its embedding."""

    def __init__(self, words=11, width=8, blocks=2):
        super().__init__()
        self.embed = torch.nn.Embedding(words, width)
        self.blocks = torch.nn.ModuleList(Block(width) for _ in range(blocks))
        self.head = torch.nn.Linear(width, words, bias=False)
        self.head.weight = self.embed.weight
        self.register_buffer("mask", torch.ones(4, 4, dtype=torch.bool).tril())
        self.register_buffer("scratch", torch.zeros(3), persistent=False)

    def forward(self, x):
        x = self.embed(x)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def equal(one, other):
    """The same state dict, bit for bit."""
    a, b = one.state_dict(), other.state_dict()
    return a.keys() == b.keys() and all(torch.equal(a[key], b[key]) for key in a)


def test_a_transformer_with_a_tied_embedding_is_filled_in_place():
    """Every parameter and buffer has the saved bits in its own memory, the tie is there and read once."""
    source, live = Transformer(), Transformer()
    addresses = {name: p.data_ptr() for name, p in live.named_parameters()}
    entries, kept = saved({"model": source})
    restoration = match({"model": live}, entries)
    assert (
        len({w.path for w in restoration.wanted})
        == len(restoration.wanted)
        == len(list(source.parameters())) + 1
    )
    fill(restoration, kept)
    assert equal(source, live)
    assert live.head.weight is live.embed.weight
    assert addresses == {name: p.data_ptr() for name, p in live.named_parameters()}


def test_a_load_gives_the_state_dict_with_ties():
    """Without a template the model is its state dict, which load_state_dict takes."""
    source = Transformer()
    made = loaded({"model": source})["model"]
    assert made["head.weight"].data_ptr() == made["embed.weight"].data_ptr()
    live = Transformer()
    live.load_state_dict(made)
    assert equal(source, live)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_the_names_are_those_without_wrappers():
    """A compiled or data-parallel model has the same paths as the model in it."""
    source = Transformer()
    bare = [entry.path for entry in flatten({"m": source}).entries]
    assert [e.path for e in flatten({"m": torch.compile(source, backend="eager")}).entries] == bare
    assert [e.path for e in flatten({"m": torch.nn.DataParallel(source)}).entries] == bare
    live = Transformer()
    restored({"m": source}, {"m": torch.nn.DataParallel(torch.compile(live, backend="eager"))})
    assert equal(source, live)


def test_everything_that_differs_is_told_at_once_and_nothing_changed():
    """Missing, unexpected, shape and dtype stand in one error, with a hint of what to skip."""
    source = torch.nn.ModuleDict(
        {"a": torch.nn.Linear(2, 3), "b": torch.nn.Linear(2, 2), "c": torch.nn.Linear(1, 1)}
    )
    live = torch.nn.ModuleDict(
        {"a": torch.nn.Linear(2, 5), "b": torch.nn.Linear(2, 2).half(), "d": torch.nn.Linear(1, 1)}
    )
    before = {key: value.clone() for key, value in live.state_dict().items()}
    entries, _ = saved({"m": source})
    with pytest.raises(RestoreMismatch) as caught:
        match({"m": live}, entries)
    text = str(caught.value)
    for expected in (
        "m/a.weight has shape [5, 2] in the state and [3, 2] in the checkpoint",
        "m/b.bias has dtype float16 in the state and float32 in the checkpoint",
        "m/d.weight is in the state and not in the checkpoint",
        "m/c.bias is in the checkpoint and not in the state",
        "skip=[",
    ):
        assert expected in text
    assert set(caught.value.fields["paths"]) == {f"m/{n}.{k}" for n in "abcd" for k in ("weight", "bias")}
    assert all(torch.equal(before[key], value) for key, value in live.state_dict().items())


def test_a_new_head_is_left_alone_when_it_is_named():
    """Skipped leaves stay as they are; the coverage says which on which side."""
    source = torch.nn.ModuleDict(
        {"body": torch.nn.Linear(2, 2), "head": torch.nn.Linear(2, 3), "old": torch.nn.Linear(1, 1)}
    )
    live = torch.nn.ModuleDict(
        {"body": torch.nn.Linear(2, 2), "head": torch.nn.Linear(2, 5), "new": torch.nn.Linear(1, 1)}
    )
    before = live["head"].weight.clone()
    coverage = restored({"m": source}, {"m": live}, strict=False, skip=["m/head.*", "m/old.*", "m/new.*"])
    assert torch.equal(live["body"].weight, source["body"].weight)
    assert torch.equal(live["head"].weight, before)
    assert coverage.restored == ("m/body.weight", "m/body.bias")
    assert coverage.skipped == ("m/head.weight", "m/head.bias")
    assert coverage.missing == ("m/new.weight", "m/new.bias")
    assert coverage.unexpected == ("m/old.weight", "m/old.bias")


class Counting(torch.nn.Module):
    """A module with state beyond tensors."""

    def __init__(self, extra):
        super().__init__()
        self.linear = torch.nn.Linear(1, 1)
        self.extra = extra

    def get_extra_state(self):
        return self.extra

    def set_extra_state(self, state):
        self.extra = state


def test_extra_state_comes_back():
    """What get_extra_state gives is saved, plain or with tensors, and set again."""
    source = Counting({"seen": 3, "names": ["a", ("b", 1)], "mean": torch.ones(2)})
    live = Counting({})
    restored({"m": source}, {"m": live})
    assert live.extra["seen"] == 3
    assert live.extra["names"] == ["a", ("b", 1)]
    assert torch.equal(live.extra["mean"], torch.ones(2))
    assert torch.equal(live.linear.weight, source.linear.weight)


def test_extra_state_that_is_no_state_is_refused_by_path():
    """A function in the extra state is named."""
    with pytest.raises(UnsupportedLeaf, match="m/_extra_state/hook is of type function") as caught:
        flatten({"m": Counting({"hook": lambda: None})})
    assert caught.value.fields["path"] == "m/_extra_state/hook"


def test_load_hooks_are_called():
    """A module that wants to know when its state was loaded is told, after it has it."""
    seen = []
    live = torch.nn.Linear(2, 2)
    live.register_load_state_dict_post_hook(lambda module, _keys: seen.append(module.weight.sum().item()))
    source = torch.nn.Linear(2, 2)
    restored({"m": source}, {"m": live})
    assert seen == [source.weight.sum().item()]


def test_state_dicts_that_are_no_memory_of_the_module_go_through_load_state_dict():
    """A module that gives copies under other names gets them back by its own load_state_dict."""

    class Renamed(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = torch.nn.Parameter(torch.randn(3))

        def state_dict(self):
            return {"w": self.weight.detach().clone()}

        def load_state_dict(self, state):
            with torch.no_grad():
                self.weight.copy_(state["w"])

    source, live = Renamed(), Renamed()
    restored({"m": source}, {"m": live})
    assert torch.equal(source.weight, live.weight)


def test_batch_norm_counters_and_spectral_norm_come_back():
    """Buffers of integers and 0 dimensions, and parametrized weights, are state too."""

    def make():
        return torch.nn.Sequential(
            torch.nn.BatchNorm1d(3),
            torch.nn.utils.parametrizations.spectral_norm(torch.nn.Linear(3, 3)),
            torch.nn.LSTM(3, 2),
        )

    source, live = make(), make()
    source[1](source[0](torch.randn(5, 3)))
    restored({"m": source}, {"m": live})
    assert equal(source, live)
    assert live[0].num_batches_tracked == 1


def test_a_flat_dict_of_tensors_fits_a_model():
    """Weights that came from elsewhere as a plain dict go into a model."""
    source, live = torch.nn.Linear(2, 2), torch.nn.Linear(2, 2)
    restored({"m": dict(source.state_dict())}, {"m": live})
    assert equal(source, live)


def test_a_lazy_module_takes_its_shape_from_the_checkpoint():
    """A layer that was never run gets its parameters from the saved ones."""
    source, live = torch.nn.Linear(3, 2), torch.nn.LazyLinear(2)
    restored({"m": source}, {"m": live})
    assert torch.equal(live.weight, source.weight)


def test_the_same_model_twice_is_stored_once():
    """Two names for one model take its bytes once."""
    model = Transformer()
    assert len(flatten({"a": model, "b": model}).pieces) == len(flatten({"a": model}).pieces)
