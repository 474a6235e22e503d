"""Saves in the background: staged state, one at a time, errors that surface."""

import subprocess
import sys
import textwrap
import threading

import numpy as np
import pytest
import torch

import everstep as es
from everstep import events
from everstep.errors import StoreFull
from everstep.store.memory import MemoryStore


class Gate:
    """A store whose packs wait until they are let through, or fail."""

    def __init__(self, error=None):
        self.inner = MemoryStore()
        self.open = threading.Event()
        self.error = error
        self.url = self.inner.url
        self.get, self.get_range, self.list, self.delete = (
            self.inner.get,
            self.inner.get_range,
            self.inner.list,
            self.inner.delete,
        )

    def create(self, key, body):
        if key.startswith("packs/"):
            assert self.open.wait(60)
            if self.error:
                raise self.error
        self.inner.create(key, body)


def test_save_returns_when_staged_and_later_changes_are_not_stored():
    """Training goes on while packs wait; what is stored is the state at the call."""
    store = Gate()
    state = {"w": torch.zeros(2**20), "n": np.zeros(1000), "step": 1, "deep": {"list": [1, 2]}}
    ckpt = es.Checkpointer(store, "r")
    pending = ckpt.save(1, state)
    assert not pending.done
    state["w"] += 1
    state["n"] += 1
    state["step"] = 2
    state["deep"]["list"].append(3)
    store.open.set()
    pending.wait()
    ckpt.close()
    loaded = es.load(store, run="r")
    assert not loaded["w"].any()
    assert not loaded["n"].any()
    assert loaded["step"] == 1
    assert loaded["deep"] == {"list": [1, 2]}


def test_mutation_under_load_never_reaches_the_store(tmp_path):
    """Ten saves while the tensors are rewritten without pause: each checkpoint is of one moment."""
    tensors = {f"t{n}": torch.zeros(2**18) for n in range(8)}
    with es.Checkpointer(str(tmp_path / "s"), "r") as ckpt:
        for step in range(1, 11):
            for tensor in tensors.values():
                tensor.fill_(step)
            ckpt.save(step, tensors)
            for tensor in tensors.values():
                tensor.fill_(-1)
        ckpt.wait()
        for checkpoint in ckpt.checkpoints():
            loaded = es.load(str(tmp_path / "s"), run="r", step=checkpoint.step)
            assert all(bool((tensor == checkpoint.step).all()) for tensor in loaded.values())


def test_the_next_save_waits_for_the_one_in_flight():
    """By default no save is lost: the second begins when the first is durable."""
    store = Gate()
    ckpt = es.Checkpointer(store, "r")
    first = ckpt.save(1, {"w": torch.zeros(8)})
    threading.Timer(0.2, store.open.set).start()
    second = ckpt.save(2, {"w": torch.ones(8)})
    assert first.done
    second.wait()
    assert [checkpoint.step for checkpoint in ckpt.checkpoints()] == [2, 1]
    ckpt.close()


def test_or_is_skipped_as_the_user_chose():
    """With busy="skip" training never waits; the skipped save says so and tells the listener."""
    store, heard = Gate(), []
    ckpt = es.Checkpointer(store, "r", busy="skip", listener=heard.append)
    first = ckpt.save(1, {"w": torch.zeros(8)})
    second = ckpt.save(2, {"w": torch.ones(8)})
    assert second.skipped
    assert second.done
    assert second.wait() is None
    assert events.SaveSkipped(run="r", step=2) in heard
    store.open.set()
    assert first.wait().step == 1
    ckpt.close()


def test_an_error_surfaces_at_the_next_call_once():
    """A save that fails in the background stops the training at its next save, and only there."""
    store = Gate(error=StoreFull("no space left at /full", hint="free some"))
    store.open.set()
    ckpt = es.Checkpointer(store, "r")
    pending = ckpt.save(1, {"w": torch.zeros(8)})
    while not pending.done:
        pass
    with pytest.raises(es.EverstepError, match="no space left"):
        ckpt.save(2, {"w": torch.zeros(8)})
    store.error = None
    ckpt.save(3, {"w": torch.zeros(8)}).wait()
    ckpt.close()
    assert [checkpoint.step for checkpoint in ckpt.checkpoints()] == [3]


def test_close_raises_what_nobody_was_told():
    """The last save's error is not lost at the end."""
    store = Gate(error=StoreFull("no space left"))
    store.open.set()
    ckpt = es.Checkpointer(store, "r")
    ckpt.save(1, {"w": torch.zeros(8)})
    with pytest.raises(es.EverstepError, match="no space left"):
        ckpt.close()


def run_script(text, tmp_path):
    """A training in a process of its own."""
    script = tmp_path / "script.py"
    script.write_text(textwrap.dedent(text))
    return subprocess.run(
        [sys.executable, "-W", "ignore", str(script), str(tmp_path / "store")],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_interpreter_exit_waits_for_the_save(tmp_path):
    """A script that ends right after ``save`` has its checkpoint all the same."""
    done = run_script(
        """
        import sys, numpy, everstep as es
        ckpt = es.Checkpointer(sys.argv[1], "r", every=None)
        ckpt.save(7, {"w": numpy.ones(30_000_000)})
        """,
        tmp_path,
    )
    assert done.returncode == 0, done.stderr
    assert es.load(str(tmp_path / "store"), run="r")["w"].sum() == 30_000_000


def test_a_crash_of_the_script_waits_for_the_save_too(tmp_path):
    """An exception after ``save`` ends the script, not the save."""
    done = run_script(
        """
        import sys, numpy, everstep as es
        ckpt = es.Checkpointer(sys.argv[1], "r")
        ckpt.save(7, {"w": numpy.ones(30_000_000)})
        raise RuntimeError("out of luck")
        """,
        tmp_path,
    )
    assert done.returncode == 1
    assert "out of luck" in done.stderr
    assert es.load(str(tmp_path / "store"), run="r")["w"].sum() == 30_000_000


def test_a_failed_save_at_exit_is_not_silent(tmp_path):
    """Nobody waits, the disk refuses: the script's stderr names step and cause."""
    done = run_script(
        """
        import sys, shutil, numpy, everstep as es
        from everstep.errors import StoreFull
        from everstep.store.memory import MemoryStore
        class Full(MemoryStore):
            pass
        store = MemoryStore()
        create = store.create
        def refuse(key, body):
            if key.startswith("packs/"):
                raise StoreFull("no space left for " + key)
            create(key, body)
        store.create = refuse
        ckpt = es.Checkpointer(store, "r")
        ckpt.save(7, {"w": numpy.ones(3)})
        """,
        tmp_path,
    )
    assert "step 7" in done.stderr
    assert "no space left" in done.stderr


def test_forked_loader_workers_neither_hang_nor_harm(tmp_path):
    """Workers forked while saves run end well, and every save is whole."""
    done = run_script(
        """
        import sys, torch, everstep as es
        from torch.utils.data import DataLoader, TensorDataset
        data = TensorDataset(torch.arange(64))
        state = {"w": torch.zeros(4_000_000)}
        with es.Checkpointer(sys.argv[1], "r") as ckpt:
            for step in range(1, 6):
                state["w"].fill_(step)
                ckpt.save(step, state)
                seen = sum(int(batch[0].sum()) for batch in DataLoader(data, batch_size=8, num_workers=2))
                assert seen == 2016
        print([checkpoint.step for checkpoint in ckpt.checkpoints()])
        """,
        tmp_path,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "[5, 4, 3, 2, 1]"
    for step in range(1, 6):
        assert bool((es.load(str(tmp_path / "store"), run="r", step=step)["w"] == step).all())


def test_a_checkpointer_is_refused_in_a_forked_child(tmp_path):
    """A worker that tries to save gets an error, not a hang."""
    done = run_script(
        """
        import os, sys, everstep as es
        ckpt = es.Checkpointer(sys.argv[1], "r")
        child = os.fork()
        if child == 0:
            try:
                ckpt.save(1, {"x": 1})
            except es.EverstepError as error:
                os._exit(42 if "parent" in str(error) else 1)
            os._exit(1)
        raise SystemExit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        """,
        tmp_path,
    )
    assert done.returncode == 42, done.stderr


def test_a_save_that_cannot_begin_leaves_the_next_one_possible():
    """A listener that raises, or a leaf that cannot be saved, stops that save and no other."""
    heard = []

    def listen(event):
        heard.append(event)
        if isinstance(event, events.SaveStaged) and event.step == 1:
            raise RuntimeError("a listener of the user's")

    ckpt = es.Checkpointer(MemoryStore(), "r", listener=listen)
    with pytest.raises(RuntimeError, match="listener"):
        ckpt.save(1, {"w": torch.zeros(8)})
    with pytest.raises(es.EverstepError):
        ckpt.save(2, {"w": print})
    assert ckpt.save(3, {"w": torch.zeros(8)}).wait().step == 3
    ckpt.close()
