"""jax arrays over several devices and processes."""

import msgspec
import numpy as np
import pytest
import torch

from everstep.format.box import Box
from everstep.format.check_entries import check_entries
from everstep.format.entries import Entry, Tensor
from everstep.format.faults import Faults
from everstep.state import assemble, match
from tests.jax_world import in_ranks
from tests.state.jax_ranks import SHAPES, fill, numbers

HERE = "tests.state.jax_ranks"


def outcome(found, name):
    """What a function gave in another process; its failure is this test's."""
    why, given = found[name]
    assert not why, why
    return given


@pytest.fixture(scope="module")
def one(tmp_path_factory):
    """What one process with eight devices found."""
    names = ["random_layouts", "regular_layouts", "other_shardings", "local_devices"]
    return in_ranks(f"{HERE}:each", names, devices=8, folder=tmp_path_factory.mktemp("one"))[0]


def test_a_layout_has_the_boxes_that_jax_gives_each_device(one):
    """Random meshes, specs with several axes on a dimension in any order, one to four devices in a process."""
    outcome(one, "random_layouts")


def test_a_mesh_over_the_devices_of_processes_is_not_listed(one):
    """Axes that run over processes and their devices are told by steps, however many devices there are."""
    assert outcome(one, "regular_layouts") == {
        "both": [
            [2, 2, 2],
            ["shard:0", "shard:1", "shard:1"],
            ["data", "model", "model.1"],
            0,
            [2, 1, 0],
            [],
        ],
        "model": [
            [2, 2, 2],
            ["replicate", "shard:0", "shard:0"],
            ["data", "model", "model.1"],
            0,
            [2, 1, 0],
            [],
        ],
        "turned": [[2, 2, 2], ["shard:0"] * 3, ["model", "model.1", "data"], 0, [1, 0, 2], []],
    }


def test_other_shardings_have_a_layout_where_their_boxes_are_a_grid(one):
    """Those of the compiler and of pmap; one that is cut anyhow has none."""
    outcome(one, "other_shardings")


@pytest.fixture(scope="module")
def two(tmp_path_factory):
    """What two processes with two devices each saved: a folder of it, entries, pieces by rank; and what they found."""
    folder = tmp_path_factory.mktemp("two")
    both = in_ranks(f"{HERE}:each", ["save", "refusals"], ranks=2, devices=2, folder=folder)
    ranks = [outcome(found, "save") for found in both]
    texts = [text for text, _ in ranks]
    assert texts[0] == texts[1]
    folder.joinpath("saved").write_bytes(
        msgspec.msgpack.encode([texts[0], [p for _, kept in ranks for p in kept]])
    )
    entries = msgspec.json.decode(texts[0], type=list[Entry])
    check_entries(entries, Faults("entries"))
    return folder, entries, [kept for _, kept in ranks], both


def test_the_pieces_of_all_processes_cover_each_array_once(two):
    """Each element is in one box; a box is here or there, or in the pieces of all its replicas, with equal bytes."""
    _, entries, ranks, _ = two
    for entry in entries:
        if not isinstance(entry, Tensor):
            continue
        count = np.zeros(entry.shape, int)
        for box, holders in boxes_of(entry.path, ranks).items():
            inside = tuple(slice(o, o + n) for o, n in zip(box.offsets, box.sizes, strict=True))
            count[inside] += 1
            bodies = {body for _, body, _ in holders}
            assert len(bodies) == 1
            for _, _, replicas in holders:
                assert [rank for rank, _, _ in holders] == (replicas or [0, 1])
        assert (count == 1).all(), entry.path


def boxes_of(path, ranks):
    """The boxes of an array with their rank, bytes and replicas; no rank tells one twice."""
    found = {}
    for rank, kept in enumerate(ranks):
        for at, offsets, sizes, body, replicas in kept:
            if at == path:
                found.setdefault(Box(tuple(offsets), tuple(sizes)), []).append((rank, body, replicas))
    assert all(len({rank for rank, _, _ in held}) == len(held) for held in found.values())
    return found


def test_what_is_whole_on_every_process_has_no_layout(two):
    """Arrays on this process's devices, cut or not, and those that all processes have copies of."""
    _, entries, _, _ = two
    plain = {entry.path for entry in entries if isinstance(entry, Tensor) and entry.layout is None}
    assert plain == {"here", "local", "all"}
    assert next(entry for entry in entries if entry.path == "tied").of == "rows"


@pytest.mark.parametrize(("ranks", "devices", "turned"), [(2, 2, False), (2, 2, True), (1, 4, True)])
def test_saved_on_two_processes_and_restored_in_another_sharding(two, tmp_path, ranks, devices, turned):
    """On two processes or one, bit for bit, reading only the boxes that are there."""
    folder, *_ = two
    read = in_ranks(f"{HERE}:restore", str(folder), turned, ranks=ranks, devices=devices, folder=tmp_path)
    assert all(wanted == here for wanted, here in read)


def test_saved_by_jax_and_restored_into_torch_and_numpy(two):
    """In place and anew, bit for bit."""
    _, entries, ranks, _ = two
    kept = [piece for each in ranks for piece in each]
    named = [entry for entry in entries if entry.path in ("", "rows", "columns", "half", "cube")]
    named[0] = msgspec.structs.replace(named[0], keys=[entry.path for entry in named[1:]])
    kept = [piece for piece in kept if piece[0] in {entry.path for entry in named}]
    live = {
        "rows": torch.zeros(8, 3),
        "columns": torch.zeros(3, 8, dtype=torch.bfloat16),
        "half": np.zeros((4, 6), "float16"),
        "cube": torch.zeros(2, 4, 2, dtype=torch.complex64),
    }
    fill(match(live, named), named, kept)
    for name, array in live.items():
        expected = numbers(*SHAPES[name], 1)
        bits = array.view(torch.uint8).numpy() if isinstance(array, torch.Tensor) else array
        assert bits.tobytes() == expected.tobytes(), name
    _, made = fill(assemble(named), named, kept)
    for name, array in made.items():
        assert np.asarray(array).tobytes() == numbers(*SHAPES[name], 1).tobytes(), name


def test_refused_by_name_or_told_by_steps(two):
    """A rank that is not jax's process, a world that lacks a process."""
    for found in two[-1]:
        outcome(found, "refusals")


def test_arrays_on_several_devices_of_one_process_are_plain(one):
    """Saved whole, shard by shard; restored as the live one lies, each device with what it has."""
    outcome(one, "local_devices")
