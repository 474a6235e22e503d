"""Nothing is ever pickled or unpickled, whatever comes in."""

import ast
import pickle
from pathlib import Path

import numpy as np
import pytest
import torch

import everstep as es
from everstep.cli.entry import run
from everstep.store.memory import MemoryStore

SOURCE = Path(es.__file__).parent
RUNNING = {
    "pickle",
    "_pickle",
    "cPickle",
    "cloudpickle",
    "dill",
    "joblib",
    "marshal",
    "shelve",
    "copyreg",
    "jsonpickle",
}
HARMLESS = {("pickle", "UnpicklingError")}
"""The error alone, to name what torch refused."""


def test_no_module_of_the_package_can_unpickle():
    """No import of a pickling module, no torch.load without weights_only, no np.load (fault 26)."""
    wrong = []
    for path in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                wrong += [(path.name, one.name) for one in node.names if one.name.split(".")[0] in RUNNING]
            elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in RUNNING:
                wrong += [
                    (path.name, one.name) for one in node.names if (node.module, one.name) not in HARMLESS
                ]
            elif isinstance(node, ast.Call) and ast.unparse(node.func) in {
                "torch.load",
                "np.load",
                "numpy.load",
            }:
                words = {word.arg: ast.unparse(word.value) for word in node.keywords}
                if words.get("weights_only") != "True":
                    wrong.append((path.name, ast.unparse(node)))
            elif isinstance(node, ast.Call) and ast.unparse(node.func) in {"eval", "exec", "__import__"}:
                wrong.append((path.name, ast.unparse(node)))
    assert wrong == []


def refuse_pickle(monkeypatch):
    """From now on every way to unpickle raises."""

    def refuse(*_words, **_named):
        raise AssertionError("something was unpickled")

    for name in ("load", "loads", "Unpickler"):
        monkeypatch.setattr(pickle, name, refuse)


def test_a_whole_life_without_pickle(monkeypatch, tmp_path):
    """Save, restore, load, rebuild, export, import: each works where nothing can be unpickled (fault 26)."""
    model = torch.nn.Linear(3, 2)
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.ones(3)).sum().backward()
    optimizer.step()
    state = {"net": model, "optimizer": optimizer, "rng": es.RNG(), "a": np.arange(3), "t": ({1, 2}, b"x")}
    store = str(tmp_path / "store")
    refuse_pickle(monkeypatch)
    with es.Checkpointer(store, "run", architecture=es.Architecture.of(model, args=(3, 2))) as ckpt:
        ckpt.save(1, state)
    with es.Checkpointer(store, "run") as ckpt:
        assert ckpt.restore(state) == 1
    es.load(store, "run")
    es.rebuild(store, "run")
    out = tmp_path / "out.pt"
    assert run(["export", "run", "--format", "torch", "--out", str(out), "--store", store]) == 0
    torch.save(model.state_dict(), tmp_path / "in.pt")
    assert run(["import", str(tmp_path / "in.pt"), "--run", "in", "--step", "0", "--store", store]) == 0


class Bomb:
    """Calls a function when it is unpickled."""

    def __reduce__(self):
        return (print, ("boom",))


def test_a_pickle_in_the_state_is_bytes(monkeypatch):
    """Bytes that are a pickle come back as bytes; an object that only pickle could store is refused by path."""
    store, body = MemoryStore(), pickle.dumps(Bomb())
    refuse_pickle(monkeypatch)
    with es.Checkpointer(store, "run") as ckpt:
        ckpt.save(1, {"body": body})
        ckpt.wait()
        with pytest.raises(es.EverstepError, match="bomb"):
            ckpt.save(2, {"bomb": Bomb()})
    assert es.load(store, "run") == {"body": body}
