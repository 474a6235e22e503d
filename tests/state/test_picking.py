"""Only a part of what was saved: what patterns name, in the containers that lead there."""

import numpy as np
import pytest

from everstep.errors import UsageError
from everstep.state.conversion import assemble
from tests.state.moving import fill, saved


def a_state():
    """Nested, with a list, something tied, and values of each sort."""
    shared = np.arange(4.0)
    return {
        "model": {"layers": [{"w": np.full(3, n), "b": np.zeros(1)} for n in range(3)], "tied": shared},
        "ema": {"tied": shared, "decay": 0.5},
        "step": 7,
        "scalar": np.float32(2.5),
    }


def picked(*only):
    """The part of the state, and the paths whose bytes were read for it."""
    entries, kept = saved(a_state())
    restoration = assemble(entries, only=only)
    return fill(restoration, kept), sorted({wanted.path for wanted in restoration.wanted})


def test_a_part_and_all_below_it():
    """A path names its container and what is in it; the rest is neither there nor read."""
    found, read = picked("model/layers")
    assert list(found) == ["model"]
    assert list(found["model"]) == ["layers"]
    assert [int(layer["w"][0]) for layer in found["model"]["layers"]] == [0, 1, 2]
    assert read == [f"model/layers/{n}/{k}" for n in range(3) for k in "bw"]


def test_a_star_matches_slashes():
    """``model/*`` is all of the model, ``*/b`` all biases wherever they are."""
    assert list(picked("model/*")[0]) == ["model"]
    found, read = picked("*/b")
    assert [list(layer) for layer in found["model"]["layers"]] == [["b"]] * 3
    assert read == [f"model/layers/{n}/b" for n in range(3)]


def test_some_items_of_a_list():
    """A list with some of its items is a shorter list of these."""
    found, read = picked("model/layers/[02]/w", "step")
    assert [int(layer["w"][0]) for layer in found["model"]["layers"]] == [0, 2]
    assert found["step"] == 7
    assert read == ["model/layers/0/w", "model/layers/2/w"]


def test_what_is_tied_to_something_left_out():
    """A leaf that shares memory with one that is not picked brings the bytes, not the other leaf."""
    found, read = picked("ema")
    assert found["ema"]["tied"].tolist() == [0.0, 1.0, 2.0, 3.0]
    assert found["ema"]["decay"] == 0.5
    assert list(found) == ["ema"]
    assert read == ["model/tied"]


def test_a_part_of_a_single_value_is_all_of_it():
    """A pattern that names what a scalar is made of brings the scalar."""
    found, _ = picked("scalar*")
    assert found == {"scalar": np.float32(2.5)}


def test_a_pattern_that_names_nothing():
    """It is refused, with paths like it, and so is one of several."""
    with pytest.raises(UsageError, match=r"'model/layer' names nothing") as raised:
        picked("step", "model/layer")
    assert "model/layers" in raised.value.fields["near"]
    with pytest.raises(UsageError) as raised:
        picked("qqqqqqqq")
    assert raised.value.fields["near"] == ["model", "ema", "step", "scalar"]


def test_one_inside_another():
    """A pattern whose match lies in another's is no mistake."""
    assert list(picked("model", "model/tied")[0]["model"]) == ["layers", "tied"]
