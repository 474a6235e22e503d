"""A model's record, and the model built from it."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest
import torch

from everstep.errors import RestoreMismatch, UsageError
from everstep.state import Architecture, rebuild_model
from everstep.state.code_version import code_version
from tests.state.example_models import Tied, build, from_description
from tests.state.moving import loaded


def through_json(architecture):
    """As it stands in a checkpoint."""
    return json.loads(json.dumps(architecture.record()))


def test_the_record_says_what_the_model_is():
    """Class, factory, arguments, the table with ties, totals, versions; all of it JSON."""
    record = through_json(Architecture.of(Tied(7), args=(7,)))
    assert record["class"] == "tests.state.example_models.Tied"
    assert record["factory"] == "tests.state.example_models:Tied"
    rows = {row["name"]: row for row in record["parameters"]}
    assert rows["embed.weight"] == {
        "name": "embed.weight", "shape": [7, 4], "dtype": "float32", "count": 28, "kind": "parameter", "trainable": True, "tied": "",
    }  # fmt: skip
    assert rows["head.weight"]["tied"] == "embed.weight"
    assert rows["seen"]["kind"] == "buffer"
    assert record["totals"] == {"parameters": 28, "trainable": 28, "buffers": 1, "bytes": 28 * 4 + 8}
    assert record["packages"]["torch"] == torch.__version__
    assert {"python", "numpy", "everstep"} <= record["packages"].keys()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_model_is_built_again_with_its_weights(dtype):
    """By class and by function, of its own dtype, ties kept."""
    tied, plain = Tied(7, bias=True).to(dtype), build([2, 3, 4]).to(dtype)
    for model, how in (
        (tied, {"kwargs": {"words": 7, "bias": True}}),
        (plain, {"factory": build, "args": ([2, 3, 4],)}),
    ):
        record = through_json(Architecture.of(model, **how))
        made = rebuild_model(record, state=loaded({"deep": {"net": model}, "epoch": 1}))
        assert type(made) is type(model)
        theirs = made.state_dict()
        for name, value in model.state_dict().items():
            assert theirs[name].dtype == value.dtype
            assert torch.equal(theirs[name], value)
        if model is tied:
            assert made.head.weight is made.embed.weight


def test_the_part_of_the_state_is_named_where_it_is_not_clear():
    """The model's own name wins; else it is asked for."""
    model, ema = build([2, 2]), build([2, 2])
    record = Architecture.of(model, factory="tests.state.example_models:build", args=([2, 2],)).record()
    made = rebuild_model(record, state=loaded({"model": model, "ema": ema}))
    assert torch.equal(made[0].weight, model[0].weight)
    state = loaded({"a": model, "b": ema})
    with pytest.raises(UsageError, match=r"not clear.*'a', 'b'"):
        rebuild_model(record, state=state)
    assert torch.equal(rebuild_model(record, state=state, at="b")[0].weight, ema[0].weight)


def test_another_table_is_refused_before_weights_are_loaded():
    """Code that changed, or other arguments, are told by name and shape."""
    record = Architecture.of(build([2, 3]), factory=build, args=([2, 5],)).record()
    with pytest.raises(RestoreMismatch, match=r"0.weight has shape \[5, 2\] built and \[3, 2\] recorded"):
        rebuild_model(record)
    with pytest.raises(RestoreMismatch, match=r"1.bias is built and not recorded"):
        rebuild_model(record, factory=lambda _sizes: build([2, 3, 3]))
    assert rebuild_model(record, factory=lambda _sizes: build([2, 3]))[0].out_features == 3


def test_a_description_goes_to_a_factory():
    """A framework's own configuration is recorded as it is, and given to the factory that the caller names."""
    record = through_json(Architecture.of(build([2, 3]), description={"sizes": [2, 3], "kind": "mlp"}))
    assert record["factory"] == ""
    with pytest.raises(UsageError, match="names no factory"):
        rebuild_model(record)
    made = rebuild_model(record, factory=from_description)
    assert made[0].out_features == 3


def test_a_description_goes_to_a_recorded_factory_too():
    """A factory that is named beside a description, without arguments, gets the description."""
    record = through_json(
        Architecture.of(build([2, 3]), factory=from_description, description={"sizes": [2, 3]})
    )
    assert rebuild_model(record)[0].out_features == 3


def test_factories_that_cannot_be_imported_are_refused_when_recorded():
    """Lambdas, local functions, the script itself, names that are not there."""

    def local():
        return build([1, 1])

    names = [
        "no.such.module:f",
        "tests.state.example_models:nothing",
        "just a name",
        "json:__doc__",
        "os.path;x:y",
    ]
    for bad in (lambda: None, local, *names):
        with pytest.raises(UsageError):
            Architecture.of(build([1, 1]), factory=bad)
    code = (
        "import torch, everstep.state as s\n"
        "class M(torch.nn.Module): pass\n"
        "try: s.Architecture.of(M())\n"
        "except Exception as e: assert 'script' in str(e) and 'hint' in str(e), e\n"
        "else: raise SystemExit('not refused')\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_arguments_are_plain():
    """Anything else is refused by everstep's own error."""
    for bad in ({"args": (print,)}, {"kwargs": {"x": np.zeros(1)}}, {"description": {"x": object()}}):
        with pytest.raises(UsageError, match="cannot be recorded"):
            Architecture.of(build([1, 1]), factory=build, **bad)


def test_a_factory_that_fails_is_told():
    """With its name and the cause."""
    record = Architecture.of(build([2, 3]), factory=build).record()
    with pytest.raises(UsageError, match=r"build.*TypeError"):
        rebuild_model(record)


def test_a_record_imports_nothing_until_it_is_built():
    """Reading a record with a bad factory is harmless; building it says what is wrong."""
    record = {**Architecture.of(build([2, 3]), factory=build).record(), "factory": "no.such:thing"}
    with pytest.raises(UsageError, match="cannot be imported"):
        rebuild_model(record)


def test_a_model_of_plain_arrays_has_a_table_too():
    """A dict of arrays, as jax programs have."""
    record = Architecture.of({"w": np.zeros((2, 3)), "n": {"b": np.zeros(3)}}, factory=build).record()
    assert [(row["name"], row["count"]) for row in record["parameters"]] == [("w", 6), ("n/b", 3)]


def test_the_commit_and_whether_it_was_changed(tmp_path, monkeypatch):
    """From git where there is a repository, None where there is none."""
    source = tmp_path / "thing_of_a_commit.py"
    source.write_text("class Thing: pass\n")
    monkeypatch.syspath_prepend(tmp_path)
    from thing_of_a_commit import Thing

    assert code_version(Thing) is None

    def git(*words):
        who = ["-c", "user.name=a", "-c", "user.email=a@b"]
        subprocess.run(["git", "-C", tmp_path, *who, *words], check=True, capture_output=True)

    git("init")
    git("add", source.name)
    git("commit", "-m", "one")
    first = code_version(Thing)
    assert len(first["commit"]) == 40
    assert first["dirty"] is False
    source.write_text("class Thing: x = 1\n")
    assert code_version(Thing) == {"commit": first["commit"], "dirty": True}


def test_the_code_is_the_factorys_where_the_class_is_a_librarys(tmp_path):
    """A Sequential comes from torch; the commit that counts is that of the project that builds it."""
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "building.py").write_text(
        "def build():\n    from torch import nn\n    return nn.Linear(1, 1)\n"
    )
    git = ["git", "-C", str(tmp_path / "mine"), "-c", "user.name=t", "-c", "user.email=t@example.org"]
    for words in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "first"]):
        subprocess.run([*git, *words], check=True, capture_output=True)
    head = subprocess.run(
        [*git, "rev-parse", "HEAD"], check=True, capture_output=True, text=True
    ).stdout.strip()
    script = (
        "import everstep as es, building; "
        "print(es.Architecture.of(building.build(), factory='building:build').record()['code']['commit'])"
    )
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", script],
        cwd="/",
        env={**os.environ, "PYTHONPATH": str(tmp_path / "mine")},
        check=True,
        capture_output=True,
        text=True,
    )
    assert done.stdout.strip() == head
