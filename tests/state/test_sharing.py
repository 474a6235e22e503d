"""Tied and aliased arrays stay tied."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from everstep.errors import InvalidManifest, RestoreMismatch
from everstep.format.entries import Alias, Container, Tensor
from everstep.state import assemble, flatten, match
from tests.state.moving import fill, loaded, restored, saved


def stored(state):
    """How many bytes a save of the state takes."""
    return sum(map(len, saved(state)[1].values()))


def test_the_same_tensor_twice_is_stored_once_and_stays_one():
    """A tied weight is one tensor after a load: writing through one name shows under the other."""
    weight = torch.randn(4, 3)
    assert stored({"a": weight, "b": weight}) == 48
    made = loaded({"a": weight, "b": weight})
    made["a"][0, 0] = 7
    assert made["b"][0, 0] == 7


def test_views_inside_a_saved_tensor_stay_views():
    """Slices, transposes and reshapes of a saved tensor share its memory after a load."""
    whole = torch.arange(24.0).view(4, 6)
    state = {
        "whole": whole,
        "row": whole[1],
        "column": whole[:, 2],
        "turned": whole.T,
        "flat": whole.view(-1),
    }
    assert stored(state) == 96
    made = loaded(state)
    assert all(torch.equal(made[name], state[name]) for name in state)
    made["whole"][1, 2] = -1
    assert made["row"][2] == made["column"][1] == made["turned"][2, 1] == made["flat"][8] == -1


def test_a_view_saved_before_the_tensor_it_is_in_is_tied_too():
    """The order of names does not matter."""
    whole = torch.arange(10.0)
    state = {"part": whole[2:5], "whole": whole}
    assert stored(state) == 40
    made = loaded(state)
    made["whole"][2] = -1
    assert made["part"][0] == -1
    assert made["whole"].tolist() == [0, 1, -1, *range(3, 10)]


def test_overlapping_views_of_which_none_covers_the_other_share_a_span():
    """The stretch of memory under both is stored once."""
    memory = torch.arange(1000.0)
    state = {"a": memory[100:106], "b": memory[104:110]}
    assert stored(state) == 40
    made = loaded(state)
    assert all(torch.equal(made[name], state[name]) for name in state)
    made["a"][4] = -1
    assert made["b"][0] == -1
    live_memory = torch.zeros(30)
    live = {"a": live_memory[10:16], "b": live_memory[14:20]}
    restored(state, live)
    assert live_memory[10:20].tolist() == list(range(100, 110))
    assert live_memory.sum() == sum(range(100, 110))


def test_neighbours_and_interleaved_columns_are_stored_apart():
    """Parts of one memory without a common element do not drag the rest of it into the store."""
    memory = torch.arange(40.0).view(4, 10)
    assert stored({"a": memory[0], "b": memory[1]}) == 80
    assert stored({"a": memory[:, 1], "b": memory[:, 7]}) == 32
    live_memory = torch.zeros(4, 10)
    restored({"a": memory[:, 1], "b": memory[:, 7]}, {"a": live_memory[:, 1], "b": live_memory[:, 7]})
    assert live_memory.sum() == memory[:, [1, 7]].sum()


def test_numpy_arrays_are_tied_too():
    """Views of one array share memory after a load; backward ones are stored apart, by value."""
    whole = np.arange(12.0).reshape(3, 4)
    state = {"whole": whole, "turned": whole.T, "step": whole[::2], "back": whole[::-1]}
    assert stored(state) == 192
    made = loaded(state)
    made["whole"][2, 1] = -1
    assert made["turned"][1, 2] == made["step"][1, 1] == -1
    assert made["back"].tolist() == whole[::-1].tolist()


def test_a_live_tie_is_filled_once():
    """Tied in both: one read."""
    weight, live = torch.randn(3), torch.zeros(3)
    entries, kept = saved({"a": weight, "b": weight})
    restoration = match({"a": live, "b": live}, entries)
    assert len(restoration.wanted) == 1
    assert restoration.coverage.restored == ("a", "b")
    fill(restoration, kept)
    assert torch.equal(live, weight)


def test_tied_in_the_checkpoint_and_apart_in_the_state_fills_both():
    """No value is lost: both get the saved one."""
    weight = torch.randn(2, 3)
    live = {"a": torch.zeros(2, 3), "b": torch.zeros(2, 3), "t": torch.zeros(3, 2)}
    restored({"a": weight, "b": weight, "t": weight.T}, live)
    assert torch.equal(live["a"], weight)
    assert torch.equal(live["b"], weight)
    assert torch.equal(live["t"], weight.T)


def test_apart_in_the_checkpoint_and_tied_in_the_state_is_refused():
    """Two values do not fit in one memory."""
    live = torch.zeros(3)
    with pytest.raises(RestoreMismatch, match="shares memory with a in the state"):
        restored({"a": torch.ones(3), "b": torch.zeros(3)}, {"a": live, "b": live})
    restored({"a": torch.ones(3), "b": torch.zeros(3)}, {"a": live, "b": live}, strict=False, skip=["b"])
    assert live.sum() == 3


def test_a_view_whose_base_is_skipped_is_still_filled():
    """Leaving out the tensor that holds the bytes does not leave out what is tied to it."""
    whole = torch.arange(6.0)
    live = {"whole": torch.zeros(6), "part": torch.zeros(2)}
    coverage = restored({"whole": whole, "part": whole[3:5]}, live, strict=False, skip=["whole"])
    assert live["part"].tolist() == [3, 4]
    assert live["whole"].sum() == 0
    assert coverage.skipped == ("whole",)


def test_a_new_tensor_tied_to_a_live_one_shares_its_memory():
    """What an object holds of a live parameter is tied to it again, and is not read twice."""

    class Holder:
        def __init__(self, tensor):
            self.tensor = tensor

        def state_dict(self):
            return {"tensor": self.tensor}

        def load_state_dict(self, state):
            self.tensor = state["tensor"]

    weight, live = torch.randn(3), torch.zeros(3)
    entries, kept = saved({"w": weight, "h": Holder(weight)})
    into = {"w": live, "h": Holder(torch.zeros(3))}
    restoration = match(into, entries)
    assert len(restoration.wanted) == 1
    fill(restoration, kept)
    live[0] = 9
    assert into["h"].tensor[0] == 9


@pytest.mark.parametrize("offset", [-1, 3, 2**40])
def test_a_view_outside_its_tensor_is_refused(offset):
    """A stored view never reaches memory of others."""
    entries = [
        Container(path="", type="dict", keys=["a", "b"]),
        Tensor(path="a", dtype="float32", shape=(4,), framework="torch"),
        Alias(path="b", of="a", shape=(2,), strides=(1,), offset=offset),
    ]
    with pytest.raises(InvalidManifest, match="outside"):
        assemble(entries)


@settings(max_examples=100, deadline=None)
@given(data=st.data())
def test_any_views_of_one_memory_keep_values_and_ties(data):
    """For random views of one buffer: a load gives the same values, and a write shows wherever it did before."""
    memory = torch.arange(1.0, 25.0)
    views = {}
    for n in range(data.draw(st.integers(1, 4))):
        start = data.draw(st.integers(0, 10))
        shape = (data.draw(st.integers(1, 3)), data.draw(st.integers(1, 3)))
        strides = (data.draw(st.integers(0, 4)), data.draw(st.integers(0, 2)))
        views[str(n)] = memory.as_strided(shape, strides, start)
    made = loaded(views)
    assert all(torch.equal(made[name], views[name]) for name in views)
    first = next(iter(views))
    views[first][0, 0] = made[first][0, 0] = -5
    assert all(torch.equal(made[name], views[name]) for name in views)


def test_an_array_of_numpy_and_a_tensor_on_its_memory_are_stored_apart():
    """Ties are kept within one framework; across two the values are, which is said in the guide."""
    array = np.arange(3.0)
    state = {"n": array, "t": torch.from_numpy(array)}
    assert len(flatten(state).pieces) == 2
    made = loaded(state)
    assert made["t"].tolist() == [0, 1, 2]
