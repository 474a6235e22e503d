"""Trained nets on four ranks of a real process group, restored on other meshes."""

from tests.state import gloo_ranks


def told(zygote, function, tmp_path):
    """What each rank tells; all must end well."""
    name = f"{gloo_ranks.__name__}:{function.__name__}"
    ended = zygote.run(
        name, world=gloo_ranks.WORLD, timeout_s=120, MEETING=str(tmp_path / "meeting"), OMP_NUM_THREADS="1"
    )
    assert [one.code for one in ended] == [0] * gloo_ranks.WORLD, "\n".join(
        f"--- rank {n}: {one.code}\n{one.printed[-3000:]}" for n, one in enumerate(ended)
    )
    return [one.told for one in ended]


def test_nets_and_optimizers_come_back_in_any_other_lay(zygote, tmp_path):
    """FSDP 2, hybrid, tensor parallel, both, plain: parameters and optimizer state are bit-equal, a step on."""
    found = told(zygote, gloo_ranks.from_each_to_each, tmp_path)
    assert len(found[0]) == 9
    spread = [reads for _, into, reads in found[0] if into == "fsdp 4"]
    alone = next(reads for _, into, reads in found[0] if into == "plain")
    assert all(reads < alone / 2 for reads in spread)


def test_fsdp_1_gives_and_takes_its_sharded_state(zygote, tmp_path):
    """In either of its forms."""
    assert told(zygote, gloo_ranks.old_fsdp, tmp_path) == [["sharded", "dtensor"]] * gloo_ranks.WORLD
