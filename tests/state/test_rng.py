"""Random streams go on where they stood."""

import random

import numpy as np
import pytest
import torch

from everstep.errors import RestoreMismatch, UsageError
from everstep.state import RNG, PerRank, flatten, match
from everstep.state import rng as rng_module
from tests.state.moving import fill, loaded, restored, saved


def draws():
    """One draw of each global stream; the second normal of a pair is kept inside the generator."""
    return (
        random.random(), random.gauss(0, 1), np.random.rand(), np.random.randn(), torch.rand(1).item(), torch.randn(1).item(),  # noqa: NPY002 - the global stream is what is tested
    )  # fmt: skip


def test_the_global_streams_go_on():
    """Python's, NumPy's and torch's, with the halves of pairs that they keep."""
    random.gauss(0, 1)
    np.random.randn()  # noqa: NPY002 - the global stream is what is tested
    entries, kept = saved({"rng": PerRank(RNG())})
    expected = [draws() for _ in range(3)]
    random.seed(1)
    np.random.seed(1)  # noqa: NPY002 - the global stream is what is tested
    torch.manual_seed(1)
    fill(match({"rng": PerRank(RNG())}, entries), kept)
    assert [draws() for _ in range(3)] == expected


def test_one_stream_alone():
    """A stream that is not asked for is neither saved nor set."""
    names = [e.path for e in flatten({"rng": RNG(numpy=False, torch=False)}).entries]
    assert "rng/python" in names
    assert not [name for name in names if name.startswith(("rng/numpy", "rng/torch"))]
    live = {"rng": RNG(torch=False)}
    with pytest.raises(RestoreMismatch, match="rng/torch is in the checkpoint and not in the state"):
        restored({"rng": RNG()}, live)
    before = torch.get_rng_state()
    coverage = restored({"rng": RNG()}, live, strict=False, skip=["rng/torch"])
    assert coverage.unexpected == ("rng/torch",)
    assert torch.equal(torch.get_rng_state(), before)


GENERATORS = {
    "python": random.Random,
    "pcg": np.random.default_rng,
    "mt": lambda seed: np.random.Generator(np.random.MT19937(seed)),
    "philox": lambda seed: np.random.Generator(np.random.Philox(seed)),
    "sfc": lambda seed: np.random.Generator(np.random.SFC64(seed)),
    "legacy": np.random.RandomState,
    "torch": lambda seed: torch.Generator().manual_seed(seed),
}


def draw(generator):
    """A few numbers of a generator."""
    if isinstance(generator, random.Random):
        return [generator.random(), generator.gauss(0, 1)]
    if isinstance(generator, torch.Generator):
        return torch.randn(3, generator=generator).tolist()
    if isinstance(generator, np.random.RandomState):
        return generator.randn(3).tolist()
    return [*generator.standard_normal(3), *generator.integers(0, 100, 3, np.int32)]


@pytest.mark.parametrize("name", GENERATORS)
@pytest.mark.parametrize("named", [True, False])
def test_a_generator_goes_on(name, named):
    """By name in an RNG, or as a part of the state itself."""
    source, live = GENERATORS[name](1), GENERATORS[name](2)
    draw(source)

    def wrap(generator):
        return {"r": RNG(generators={"own": generator})} if named else {"r": generator}

    entries, kept = saved(wrap(source))
    expected = [draw(source) for _ in range(3)]
    fill(match(wrap(live), entries), kept)
    assert [draw(live) for _ in range(3)] == expected


def test_other_generators_are_a_mismatch():
    """Of another name or another kind."""
    one, other = RNG(generators={"a": random.Random(1)}), RNG(generators={"b": random.Random(1)})
    with pytest.raises(RestoreMismatch, match="generators/b is in the state") as caught:
        restored({"r": one}, {"r": other})
    assert "r/generators/a" in str(caught.value)
    with pytest.raises(RestoreMismatch, match="generators/a is in the state"):
        restored({"r": RNG()}, {"r": one})
    with pytest.raises(RestoreMismatch, match=r"is a numpy.* in the state and a torch"):
        restored({"g": torch.Generator()}, {"g": np.random.default_rng()})
    with pytest.raises(UsageError, match="no random generator"):
        RNG(generators={"x": 3})


def test_a_saved_framework_that_is_not_here_is_told(monkeypatch):
    """By name; it can be skipped."""
    entries, _ = saved({"rng": RNG(python=False, numpy=False)})
    monkeypatch.setattr(rng_module.importlib.util, "find_spec", lambda _name: None)
    with pytest.raises(
        RestoreMismatch, match="rng/torch is the random state of torch, and torch is not installed"
    ):
        match({"rng": RNG(python=False, numpy=False)}, entries)
    assert match({"rng": RNG()}, entries, strict=False, skip=["rng/torch"]).coverage.skipped == ("rng/torch",)


def test_a_load_shows_the_streams():
    """Without a template the streams are arrays and plain values."""
    made = loaded({"rng": RNG()})["rng"]
    assert made["python"]["words"].shape == (625,)
    assert made["torch"].dtype == torch.uint8
