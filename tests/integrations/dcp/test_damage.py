"""Damage in the store: every bit counts on ``dcp.load``, where torch's own storage hands damage to the training."""

import random

import pytest
import torch
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.api import CheckpointException

from everstep.errors import EverstepError, IntegrityError
from tests.integrations.dcp.worlds import emptied, load, quiet, save

FLIPS = 100


def state():
    """Some tensors and an object."""
    generator = torch.Generator().manual_seed(0)
    found = {f"layer{n}": torch.randn(64, 33, generator=generator) for n in range(8)}
    return {"model": found, "epoch": 3}


def flipped(path, number):
    """The file's bytes with one bit changed."""
    body = bytearray(path.read_bytes())
    body[number // 8 % len(body)] ^= 1 << number % 8
    return bytes(body)


def objects(folder):
    """The files that a load needs, by size."""
    return [path for path in sorted(folder.rglob("*")) if path.is_file()]


def needed(path):
    """Whether a load reads it: not the attempt, the plan and the run's record."""
    return not any(word in str(path) for word in ("/attempts/", "/plans/", "/catalogue/"))


def outcome(read):
    """``found`` for an error, ``harmless`` for the right state, ``silent`` for a wrong one."""
    try:
        found = read()
    except (CheckpointException, EverstepError, RuntimeError) as error:
        return "found", error
    right = all(torch.equal(found["model"][name], value) for name, value in state()["model"].items())
    return ("harmless" if right and found["epoch"] == 3 else "silent"), None


def test_a_hundred_flipped_bits_are_all_found(tmp_path):
    """In any object that is read: pack, index, manifest, commit record; none gives a wrong state."""
    save(tmp_path, "r", 1, state())
    dice = random.Random(1)
    files = [path for path in objects(tmp_path) if needed(path)]
    packs = [path for path in files if path.suffix == ".safetensors"]
    seen = []
    for n in range(FLIPS):
        path = dice.choice(files) if n % 4 == 0 else dice.choice(packs)
        body = path.read_bytes()
        header = int.from_bytes(body[:8], "little") + 8 if path in packs else 0
        path.write_bytes(flipped(path, dice.randrange(8 * header, 8 * len(body))))
        what, error = outcome(lambda: load(tmp_path, "r", emptied(state())))
        path.write_bytes(body)
        seen.append(what)
        if isinstance(error, CheckpointException):
            ((cause, _trace),) = error.failures.values()
            # of an error while the metadata is read DCP keeps the words only
            assert isinstance(cause, EverstepError) or "hint: " in str(cause), cause
    assert seen == ["found"] * FLIPS
    assert outcome(lambda: load(tmp_path, "r", emptied(state())))[0] == "harmless"


def test_torchs_own_storage_loads_most_of_them_in_silence(tmp_path):
    """The same bits in the same tensors: this is what the plug-in is for."""
    with quiet():
        dcp.save(state(), checkpoint_id=tmp_path / "theirs", no_dist=True)
    (path,) = (tmp_path / "theirs").glob("*.distcp")
    body = path.read_bytes()
    dice = random.Random(1)
    silent = 0

    def read():
        found = emptied(state())
        with quiet():
            dcp.load(found, checkpoint_id=tmp_path / "theirs", no_dist=True)
        return found

    for _ in range(20):
        path.write_bytes(flipped(path, dice.randrange(8 * len(body))))
        silent += outcome(read)[0] == "silent"
        path.write_bytes(body)
    assert silent >= 10


@pytest.mark.parametrize("how", ["cut", "gone", "swapped"])
def test_a_pack_that_is_cut_gone_or_anothers_is_named(tmp_path, how):
    """Key, run and step stand in the error."""
    save(tmp_path, "r", 1, state())
    save(
        tmp_path, "r", 2, {"model": {name: value + 1 for name, value in state()["model"].items()}, "epoch": 3}
    )
    one, two = sorted(path for path in objects(tmp_path) if path.suffix == ".safetensors")
    if how == "gone":
        one.unlink()
        two.unlink()
    elif how == "cut":
        for path in (one, two):
            path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    else:
        first, second = one.read_bytes(), two.read_bytes()
        one.write_bytes(second)
        two.write_bytes(first)
    with pytest.raises(CheckpointException) as caught:
        load(tmp_path, "r", emptied(state()))
    ((cause, _trace),) = caught.value.failures.values()
    assert isinstance(cause, IntegrityError)
    assert cause.fields["key"].startswith("packs/")
    assert cause.fields["step"] == 2
