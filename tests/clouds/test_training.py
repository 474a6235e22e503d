"""The main job on each cloud, through the public names alone."""

import signal

import pytest
import torch

import everstep as es
from tests.clouds.trainings import TRAINING, equal, step_of, training
from tests.clouds.worlds import Held, start, written
from tests.emulators.proxy import Asked

ROOT = __file__.rpartition("/tests/")[0]


def quiet(_event) -> None:
    """Listens to nothing."""


def is_pack(asked: Asked) -> bool:
    """Whether a request uploads a pack."""
    return asked.method in {"PUT", "POST"} and "packs" in asked.path.partition("?")[0]


def test_a_torch_training_comes_back_to_the_bit(cloud):
    """Model, optimizer, scheduler and random states; what follows is the same too."""
    state = training()
    with es.Checkpointer(cloud.url, "run", listener=quiet) as ckpt:
        assert ckpt.restore(state) is None
        for _ in range(3):
            step_of(state)
        ckpt.save(3, state, metrics={"loss": state["losses"][-1]}).wait()
    followed = [step_of(state) for _ in range(3)]
    again = training(seed=9)
    with es.Checkpointer(cloud.url, "run", listener=quiet) as ckpt:
        assert ckpt.restore(again) == 3
        assert ckpt.latest().metrics == {"loss": again["losses"][-1]}
    assert [step_of(again) for _ in range(3)] == followed


def test_the_state_may_change_while_it_is_saved(cloud):
    """What was staged is stored, however the training goes on; requests are held until it has changed."""
    state = {"w": torch.arange(300_000, dtype=torch.float32), "n": 0}
    wanted = state["w"].clone()
    cloud.proxy.script = held = Held(is_pack)
    with es.Checkpointer(cloud.url, "run", listener=quiet) as ckpt:
        ckpt.restore(state)
        pending = ckpt.save(1, state)
        assert held.reached.wait(60)
        state["w"].fill_(-1)
        state["n"] = 99
        held.let(cut=False)
        pending.wait()
    loaded = es.load(cloud.url, "run", listener=quiet)
    assert torch.equal(loaded["w"], wanted)
    assert loaded["n"] == 0


def test_frozen_weights_are_stored_once(cloud):
    """The second save of a state of which 90 % stand still stores about 10 %: counted on the wire too."""
    part = 100_000
    state = {f"frozen{n}": torch.randn(part) for n in range(9)} | {"head": torch.randn(part)}
    with es.Checkpointer(cloud.url, "run", listener=quiet) as ckpt:
        ckpt.restore(state)
        ckpt.save(1, state).wait()
        cloud.proxy.forget()
        state["head"] += 1
        ckpt.save(2, state).wait()
        second, first = ckpt.checkpoints()
    assert first.stored_bytes >= first.bytes
    assert 0.1 * second.bytes <= second.stored_bytes < 0.12 * second.bytes
    sent = sum(asked.length for asked in cloud.proxy.asked)
    assert second.stored_bytes <= sent < second.stored_bytes + 20_000
    assert torch.equal(es.load(cloud.url, "run", step=2, listener=quiet)["head"], state["head"])


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """The end of the same training that nobody stopped, on a local disk."""
    folder = tmp_path_factory.mktemp("undisturbed")
    environ = {"EVERSTEP_STORE": str(folder / "store"), "EVERSTEP_RUN": "run", "PYTHONPATH": ROOT}
    with start(written(folder, TRAINING), environ, "0") as process:
        _told, problems = process.communicate(timeout=120)
    assert process.returncode == 0, problems
    return es.load(str(folder / "store"), "run", listener=quiet)


def test_sigterm_then_kill_then_the_end(cloud, tmp_path, undisturbed):
    """By variables alone: exit 75 and durable; kill -9 while a pack is on its way; the end is that of an
    undisturbed training, bit for bit, though the killed writer's request arrives late.
    """
    script = written(tmp_path, TRAINING)
    environ = {**cloud.environ, "EVERSTEP_STORE": cloud.url, "EVERSTEP_RUN": "run", "PYTHONPATH": ROOT}

    with start(script, environ, "0.1") as process:
        assert process.stdout.readline() == "SaveStaged 4\n", process.stderr.read()
        process.send_signal(signal.SIGTERM)
        told, problems = process.communicate(timeout=120)
    assert process.returncode == 75, problems
    preempted_at = int(told.split()[-1])
    assert told.splitlines()[-1] == f"SaveCommitted {preempted_at}"
    assert preempted_at < 20
    assert es.load(cloud.url, "run", step=preempted_at, listener=quiet)["losses"]

    cloud.proxy.script = held = Held(is_pack)
    with start(script, environ, "0") as process:
        assert held.reached.wait(120), process.stderr.read()
        process.kill()
        process.wait()
    held.let(cut=False)
    cloud.proxy.script = Held(lambda _asked: False)

    with start(script, environ, "0") as process:
        told, problems = process.communicate(timeout=120)
    assert process.returncode == 0, problems
    assert "SaveCommitted 20" in told
    assert f"SaveStaged {preempted_at}\n" not in told, "it did not go on from the last commit"
    assert equal(es.load(cloud.url, "run", listener=quiet), undisturbed)


LOADER = """
    import torch, everstep as es
    from torch.utils.data import DataLoader

    class Squares(torch.utils.data.Dataset):
        def __len__(self):
            return 16
        def __getitem__(self, n):
            return torch.full((4,), float(n))

    torch.set_num_threads(1)
    state = {"w": torch.randn(500_000), "n": 0}
    with es.Checkpointer(listener=lambda event: None) as ckpt:
        ckpt.restore(state)
        for epoch in range(4):
            state["n"] = epoch
            pending = ckpt.save(epoch + 1, state)
            loader = DataLoader(Squares(), batch_size=4, num_workers=2, multiprocessing_context="fork")
            seen = sum(batch.sum().item() for batch in loader)
            assert seen == 4 * sum(range(16)), seen
            print("busy" if not pending.done else "idle", flush=True)
            pending.wait()
    print("closed", flush=True)
"""


def test_loader_workers_are_forked_while_a_save_runs(cloud, tmp_path):
    """Neither hang nor harm: each epoch's workers end, each save commits, the process ends by itself."""
    environ = {**cloud.environ, "EVERSTEP_STORE": cloud.url, "EVERSTEP_RUN": "run"}
    cloud.proxy.script = held = Held(is_pack)
    script = written(tmp_path, LOADER)
    with start(script, environ) as process:
        assert held.reached.wait(120), process.stderr.read()
        assert process.stdout.readline() == "busy\n"
        held.let(cut=False)
        told, problems = process.communicate(timeout=60)
    assert process.returncode == 0, problems
    assert told.splitlines()[-1] == "closed"
    loaded = es.load(cloud.url, "run", listener=quiet)
    assert loaded["n"] == 3
    with es.Checkpointer(cloud.url, "run", listener=quiet) as ckpt:
        assert [one.step for one in ckpt.checkpoints()] == [4, 3, 2, 1]
