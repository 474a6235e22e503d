"""Checkpoints out of and into the files of other tools, read back by those tools."""

import datetime as dt
import json
import os
import pickle
import subprocess
import sys
from collections import OrderedDict
from pathlib import PurePosixPath

import numpy as np
import pytest
import safetensors.numpy
import safetensors.torch
import torch
from torch import nn

import everstep as es
from tests.cli.worlds import ask, state_at, trained


@pytest.fixture
def store(tmp_path):
    """A store with the run digits, at steps 10 and 20."""
    return trained(tmp_path / "store", steps=(10, 20))


def network(seed=0):
    """A model whose embedding and head are tied, with a buffer."""
    torch.manual_seed(seed)
    model = nn.ModuleDict({"embed": nn.Embedding(32, 8), "norm": nn.BatchNorm1d(8), "head": nn.Linear(8, 32)})
    model["head"].weight = model["embed"].weight
    return model


class TestSafetensors:
    def test_the_real_library_reads_what_was_saved(self, store, tmp_path, capsys):
        """Names join the parts with dots; values are bit for bit the state's."""
        out = tmp_path / "all.safetensors"
        answer = ask(capsys, "export", "digits@20", "--store", store, "--out", out, "--json")
        assert answer.code == 0, answer.err
        found = safetensors.numpy.load_file(out)
        assert {name.removeprefix("model.") for name in found} == set(state_at(20)["model"])
        for name, array in state_at(20)["model"].items():
            np.testing.assert_array_equal(found[f"model.{name}"], array)
        assert answer.json["left_out"] == ["epoch", "lr", "name"]

    def test_slashes_keep_the_paths(self, store, tmp_path, capsys):
        """--names slash gives the paths that show shows."""
        out = tmp_path / "all.safetensors"
        ask(capsys, "export", "digits", "--store", store, "--out", out, "--names", "slash")
        assert "model/head.bias" in safetensors.numpy.load_file(out)

    def test_a_models_part_loads_as_its_state_dict(self, store, tmp_path, capsys):
        """Tied weights stand under each of their names, so that load_state_dict is strict and content."""
        model = network(1)
        with es.Checkpointer(store, "net") as ckpt:
            ckpt.save(1, {"model": model, "steps": 1}).wait()
        out = tmp_path / "model.safetensors"
        answer = ask(capsys, "export", "net", "--store", store, "--out", out, "--select", "model")
        assert answer.code == 0, answer.err
        other = network(2)
        other.load_state_dict(safetensors.torch.load_file(out), strict=True)
        for name, tensor in model.state_dict().items():
            assert torch.equal(other.state_dict()[name], tensor), name

    def test_the_header_says_where_it_comes_from(self, store, tmp_path, capsys):
        """And that transformers may read it."""
        out = tmp_path / "m.safetensors"
        ask(capsys, "export", "digits@20", "--store", store, "--out", out, "--select", "model")
        with safetensors.safe_open(out, "np") as file:
            metadata = file.metadata()
        assert metadata["format"] == "pt"
        assert metadata["everstep.run"] == "digits"
        assert metadata["everstep.step"] == "20"

    @pytest.mark.parametrize(
        "dtype",
        [
            torch.bfloat16,
            torch.float16,
            torch.float8_e4m3fn,
            torch.float8_e5m2,
            torch.bool,
            torch.int8,
            torch.int64,
        ],
    )
    def test_every_common_type_survives_out_and_in(self, dtype, store, tmp_path, capsys):
        """export, read by safetensors, import, es.load: the same bits."""
        tensor = torch.arange(-6, 6).to(torch.float32).to(dtype).reshape(3, 4)
        with es.Checkpointer(store, "types") as ckpt:
            ckpt.save(1, {"model": {"w": tensor, "scalar": tensor[0, 1].clone(), "none": tensor[:0]}}).wait()
        out = tmp_path / "t.safetensors"
        assert ask(capsys, "export", "types", "--store", store, "--out", out, "--select", "model").code == 0
        found = safetensors.torch.load_file(out)
        assert found["w"].dtype == dtype
        assert torch.equal(found["w"].view(torch.uint8), tensor.view(torch.uint8))
        assert found["scalar"].shape == ()
        assert found["none"].shape == (0, 4)
        assert ask(capsys, "import", out, "--run", "again", "--step", "1", "--store", store).code == 0
        again = es.load(store, "again")["model"]
        assert again["w"].dtype == dtype
        assert torch.equal(again["w"].view(torch.uint8), tensor.view(torch.uint8))

    def test_a_strided_view_is_written_as_its_elements(self, store, tmp_path, capsys):
        """A transposed tensor and a slice of a shared one come out with their own shapes."""
        base = torch.arange(24.0).reshape(4, 6)
        with es.Checkpointer(store, "views") as ckpt:
            ckpt.save(1, {"m": {"base": base, "turned": base.t(), "part": base[1:3, ::2]}}).wait()
        out = tmp_path / "v.safetensors"
        assert ask(capsys, "export", "views", "--store", store, "--out", out, "--select", "m").code == 0
        found = safetensors.torch.load_file(out)
        assert torch.equal(found["turned"], base.t())
        assert torch.equal(found["part"], base[1:3, ::2])

    def test_many_bytes_are_written_in_shards_with_an_index(self, store, tmp_path, capsys):
        """As Hugging Face lays them out; imported again they are one model."""
        folder = tmp_path / "hf"
        out = folder / "model.safetensors"
        words = [
            "export",
            "digits",
            "--store",
            store,
            "--out",
            out,
            "--select",
            "model",
            "--shard-gb",
            "0.000001",
        ]
        answer = ask(capsys, *words, "--json")
        assert answer.code == 0, answer.err
        names = sorted(path.name for path in folder.iterdir())
        assert names == [
            "model-00001-of-00002.safetensors",
            "model-00002-of-00002.safetensors",
            "model.safetensors.index.json",
        ]
        index = json.loads((folder / names[-1]).read_text())
        assert set(index["weight_map"]) == set(state_at(20)["model"])
        assert index["metadata"]["total_size"] == answer.json["bytes"]
        (folder / "config.json").write_text(json.dumps({"hidden": 16}))
        assert ask(capsys, "import", folder, "--run", "back", "--step", "3", "--store", store).code == 0
        found = es.load(store, "back")["model"]
        for name, array in state_at(20)["model"].items():
            np.testing.assert_array_equal(found[name].numpy(), array)
        assert ask(capsys, "show", "back", "--store", store, "--json").json["config"] == {"hidden": 16}

    def test_a_type_that_the_format_lacks_is_refused_by_name(self, store, tmp_path, capsys):
        """Nothing is left out silently; --skip leaves it out on purpose."""
        with es.Checkpointer(store, "wide") as ckpt:
            ckpt.save(1, {"m": {"a": torch.zeros(2), "z": torch.zeros(2, dtype=torch.complex128)}}).wait()
        out = tmp_path / "w.safetensors"
        words = ["export", "wide", "--store", store, "--out", out, "--select", "m"]
        answer = ask(capsys, *words)
        assert answer.code == 2
        assert "z (complex128)" in answer.err
        assert not out.exists()
        assert ask(capsys, *words, "--skip", "m/z").code == 0

    def test_a_file_that_exists_stays_without_force(self, store, tmp_path, capsys):
        """And with --force it is replaced whole."""
        out = tmp_path / "m.safetensors"
        out.write_text("mine")
        words = ["export", "digits", "--store", store, "--out", out, "--select", "model"]
        assert ask(capsys, *words).code == 2
        assert out.read_text() == "mine"
        assert ask(capsys, *words, "--force").code == 0
        assert "head.bias" in safetensors.numpy.load_file(out)

    def test_a_damaged_checkpoint_leaves_no_file(self, store, tmp_path, capsys):
        """Bytes that do not verify are not exported, and no temporary file stays."""
        for path in (tmp_path / "store" / "packs").rglob("*.safetensors"):
            path.chmod(0o644)
            body = bytearray(path.read_bytes())
            body[-5] ^= 1
            path.write_bytes(body)
        folder = tmp_path / "out"
        out = folder / "m.safetensors"
        answer = ask(capsys, "export", "digits", "--store", store, "--out", out, "--select", "model")
        assert answer.code == 6
        assert list(folder.iterdir()) == []

    def test_nothing_selected_is_an_error(self, store, tmp_path, capsys):
        """With what there is to select."""
        answer = ask(
            capsys,
            "export",
            "digits",
            "--store",
            store,
            "--out",
            tmp_path / "x.safetensors",
            "--select",
            "mode",
        )
        assert answer.code == 2
        assert "model" in answer.err

    def test_a_full_disk_is_an_error_of_words(self, store, tmp_path, capsys, monkeypatch):
        """Room is taken before pages are written: no SIGBUS half-way, and no temporary file."""

        def full(*_args):
            raise OSError(28, os.strerror(28))

        monkeypatch.setattr(os, "posix_fallocate", full)
        answer = ask(capsys, "export", "digits", "--store", store, "--out", tmp_path / "f" / "m.safetensors")
        assert answer.code == 1
        assert "No space left" in answer.err
        assert list((tmp_path / "f").iterdir()) == []


class TestTorch:
    def test_the_whole_nesting_loads_with_weights_only(self, store, tmp_path, capsys):
        """Tensors, optimizer state, counters: what torch.save of the plain state would hold."""
        model = network(1)
        optimizer = torch.optim.AdamW(model.parameters())
        model["head"](model["embed"](torch.tensor([1, 2]))).sum().backward()
        optimizer.step()
        with es.Checkpointer(store, "net") as ckpt:
            ckpt.save(
                1, {"model": model, "optimizer": optimizer, "history": [1.0, 2.0], "seen": (3, "x")}
            ).wait()
        out = tmp_path / "net.pt"
        answer = ask(capsys, "export", "net", "--store", store, "--format", "torch", "--out", out, "--json")
        assert answer.code == 0, answer.err
        found = torch.load(out, weights_only=True)
        network(2).load_state_dict(found["model"], strict=True)
        torch.optim.AdamW(network(2).parameters()).load_state_dict(found["optimizer"])
        assert found["history"] == [1.0, 2.0]
        assert found["seen"] == (3, "x")
        assert torch.equal(found["model"]["embed.weight"], model["embed"].weight)

    def test_a_part_is_the_file(self, store, tmp_path, capsys):
        """--select model: torch.load gives the state dict itself."""
        out = tmp_path / "m.pt"
        words = ["export", "digits", "--store", store, "--format", "torch", "--out", out, "--select", "model"]
        assert ask(capsys, *words).code == 0
        found = torch.load(out, weights_only=True)
        np.testing.assert_array_equal(found["head.bias"].numpy(), state_at(20)["model"]["head.bias"])

    def test_what_weights_only_refuses_is_left_out_and_listed(self, store, tmp_path, capsys):
        """A path and a date have no place in a file of tensors."""
        state = {
            "when": dt.date(2026, 1, 2),
            "where": PurePosixPath("a"),
            "n": 1,
            "w": torch.ones(2),
        }
        with es.Checkpointer(store, "odd") as ckpt:
            ckpt.save(1, state).wait()
        out = tmp_path / "o.pt"
        answer = ask(capsys, "export", "odd", "--store", store, "--format", "torch", "--out", out, "--json")
        assert sorted(answer.json["left_out"]) == ["when", "where"]
        found = torch.load(out, weights_only=True)
        assert found["n"] == 1
        assert torch.equal(found["w"], torch.ones(2))
        assert set(found) == {"n", "w"}


class TestImport:
    def test_a_torch_file_keeps_its_nesting(self, store, tmp_path, capsys):
        """The usual dict of state dicts."""
        path = tmp_path / "train.pt"
        torch.save({"model": network(1).state_dict(), "epoch": 3, "lr": [0.1]}, path)
        answer = ask(capsys, "import", path, "--run", "in", "--step", "30", "--store", store, "--json")
        assert answer.code == 0, answer.err
        found = es.load(store, "in")
        assert found["epoch"] == 3
        assert torch.equal(found["model"]["head.weight"], network(1).state_dict()["head.weight"])
        assert ask(capsys, "show", "in@30", "--store", store).code == 0

    def test_an_imported_model_restores_into_a_real_one(self, store, tmp_path, capsys):
        """The point of it: a training goes on from another tool's weights."""
        path = tmp_path / "m.safetensors"
        model = nn.Linear(3, 2)
        safetensors.torch.save_file(model.state_dict(), path)
        ask(capsys, "import", path, "--run", "tuned", "--step", "0", "--store", store)
        mine = nn.Linear(3, 2)
        with es.Checkpointer(store, "tuned") as ckpt:
            assert ckpt.restore({"model": mine}) == 0
        assert torch.equal(mine.weight, model.weight)

    def test_hugging_face_bin_files_are_read_with_weights_only(self, store, tmp_path, capsys):
        """pytorch_model.bin beside config.json."""
        folder = tmp_path / "hf"
        folder.mkdir()
        torch.save(OrderedDict(w=torch.ones(3)), folder / "pytorch_model.bin")
        (folder / "config.json").write_text('{"n_layer": 2}')
        assert ask(capsys, "import", folder, "--run", "hf", "--step", "0", "--store", store).code == 0
        assert torch.equal(es.load(store, "hf")["model"]["w"], torch.ones(3))

    @pytest.mark.parametrize("zipped", [True, False])
    def test_fault_26_a_pickle_with_foreign_globals_is_refused_unexecuted(
        self, zipped, store, tmp_path, capsys
    ):
        """The global is named, nothing runs, no run is made."""
        fuse = tmp_path / "fuse"

        class Bomb:
            def __reduce__(self):
                return (os.system, (f"touch {fuse}",))

        path = tmp_path / "bad.pt"
        if zipped:
            torch.save({"model": Bomb()}, path)
        else:
            path.write_bytes(pickle.dumps({"model": Bomb()}, protocol=2))
        answer = ask(capsys, "import", path, "--run", "bad", "--step", "0", "--store", store)
        assert answer.code == 2
        assert answer.err.startswith("error[E-FOREIGN-PICKLE]")
        assert "posix.system" in answer.err
        assert not fuse.exists()
        assert ask(capsys, "show", "bad", "--store", store).code == 3

    @pytest.mark.parametrize(
        ("body", "field"),
        [
            (b"", "header"),
            (b"\xff" * 16, "header"),
            ((2**40).to_bytes(8, "little") + b"{}", "header"),
            (b'{"w":', "header"),
            ({"w": {"dtype": "F99", "shape": [1], "data_offsets": [0, 4]}}, "w.dtype"),
            ({"w": {"dtype": "F32", "shape": [-1], "data_offsets": [0, 4]}}, "w.shape"),
            ({"w": {"dtype": "F32", "shape": [2**62, 8], "data_offsets": [0, 4]}}, "w.data_offsets"),
            ({"w": {"dtype": "F32", "shape": [1], "data_offsets": [0, 400]}}, "w.data_offsets"),
            ({"w": {"dtype": "F32", "shape": [100], "data_offsets": [0, 400]}}, "w.data_offsets"),
            ({"w": {"dtype": "F32", "shape": [1], "data_offsets": [4, 0]}}, "w.data_offsets"),
            (
                {
                    "a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]},
                    "w": {"dtype": "F32", "shape": [1], "data_offsets": [2, 6]},
                },
                "w.data_offsets",
            ),
        ],
    )
    def test_a_bad_safetensors_file_is_refused_by_field(self, body, field, store, tmp_path, capsys):
        """Bounds are checked before anything is read or made."""
        if isinstance(body, dict):
            header = json.dumps(body).encode()
            body = len(header).to_bytes(8, "little") + header + bytes(8)
        elif body.startswith(b"{"):
            body = len(body).to_bytes(8, "little") + body
        path = tmp_path / "bad.safetensors"
        path.write_bytes(body)
        answer = ask(capsys, "import", path, "--run", "bad", "--step", "0", "--store", store, "--json")
        assert answer.code == 6
        assert answer.json["error"]["fields"]["field"] == field
        assert ask(capsys, "show", "bad", "--store", store).code == 3

    def test_an_index_that_leaves_its_folder_is_refused(self, store, tmp_path, capsys):
        """Fault 27: nothing outside the folder is read."""
        folder = tmp_path / "hf"
        folder.mkdir()
        safetensors.numpy.save_file({"w": np.ones(1)}, tmp_path / "secret.safetensors")
        index = {"weight_map": {"w": "../secret.safetensors"}}
        (folder / "model.safetensors.index.json").write_text(json.dumps(index))
        answer = ask(capsys, "import", folder, "--run", "bad", "--step", "0", "--store", store)
        assert answer.code == 6
        assert "../secret.safetensors" in answer.err

    @pytest.mark.parametrize("body", [b"", b"not a torch file", b"PK\x03\x04 cut short"])
    def test_a_file_that_is_no_torch_file_is_words(self, body, store, tmp_path, capsys):
        """Whatever torch raises for it."""
        path = tmp_path / "x.pt"
        path.write_bytes(body)
        answer = ask(capsys, "import", path, "--run", "bad", "--step", "0", "--store", store)
        assert answer.code in {2, 6}, answer.err
        assert answer.err.startswith("error[")

    def test_a_step_that_is_there_stays(self, store, tmp_path, capsys):
        """An import never puts a second checkpoint at a step."""
        path = tmp_path / "m.safetensors"
        safetensors.numpy.save_file({"w": np.ones(1)}, path)
        answer = ask(capsys, "import", path, "--run", "digits", "--step", "20", "--store", store)
        assert answer.code == 2
        assert ask(capsys, "show", "digits@20", "--store", store, "--json").json["checkpoint"]["attempt"] == 1

    def test_a_safetensors_file_needs_no_torch(self, store, tmp_path, capsys):
        """Neither import nor export of safetensors loads it."""
        path = tmp_path / "m.safetensors"
        safetensors.numpy.save_file({"w": np.ones(3, np.float32)}, path)
        code = (
            "import sys; from everstep.cli.entry import run\n"
            f"a = run(['import', {str(path)!r}, '--run', 'free', '--step', '0', '--store', {store!r}])\n"
            f"b = run(['export', 'free', '--out', {str(tmp_path / 'o.safetensors')!r}, '--store', {store!r}])\n"
            "assert not {'torch', 'jax'} & set(sys.modules), sorted(sys.modules)\n"
            "sys.exit(a or b)"
        )
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        np.testing.assert_array_equal(
            safetensors.numpy.load_file(tmp_path / "o.safetensors")["model.w"], np.ones(3)
        )

    @pytest.mark.parametrize("verb", ["import", "export"])
    def test_without_torch_a_torch_file_says_what_to_install(
        self, verb, store, tmp_path, capsys, monkeypatch
    ):
        """The core works without it; this needs the extra."""
        path = tmp_path / "x.pt"
        if verb == "import":
            torch.save({"w": torch.ones(1)}, path)
        monkeypatch.setitem(sys.modules, "torch", None)
        words = {
            "import": ["import", path, "--run", "r", "--step", "1"],
            "export": ["export", "digits", "--format", "torch", "--out", path],
        }
        answer = ask(capsys, *words[verb], "--store", store)
        assert answer.code == 2
        assert "everstep[torch]" in answer.err


class TestUnusualArrays:
    """Arrays that no other tool holds as they are."""

    @pytest.mark.parametrize("form", ["torch", "safetensors"])
    def test_views_and_other_byte_orders_come_out_as_their_values(self, tmp_path, capsys, form):
        """Expanded, overlapping and transposed tensors and big-endian arrays leave as plain tensors."""
        base = torch.arange(12.0)
        state = {
            "expanded": torch.arange(3.0).reshape(3, 1).expand(3, 4),
            "head": base[:8],
            "tail": base[4:],
            "transposed": torch.arange(6.0).reshape(2, 3).t(),
            "big": np.arange(3, dtype=">i4"),
        }
        with es.Checkpointer(str(tmp_path / "s"), "r") as ckpt:
            ckpt.save(1, state)
        out = tmp_path / "out"
        answer = ask(capsys, "export", "r", "--store", tmp_path / "s", "--out", out, "--format", form)
        assert answer.code == 0, answer.err
        found = torch.load(out, weights_only=True) if form == "torch" else safetensors.torch.load_file(out)
        for name, value in state.items():
            wanted = (
                value if isinstance(value, torch.Tensor) else torch.tensor(value.tolist(), dtype=torch.int32)
            )
            assert torch.equal(found[name], wanted), name

    def test_what_torch_cannot_hold_is_left_out_in_words(self, tmp_path, capsys):
        """Dates are named as left out; the rest is there."""
        with es.Checkpointer(str(tmp_path / "s"), "r") as ckpt:
            ckpt.save(1, {"day": np.array(["2026-01-01"], dtype="datetime64[D]"), "w": np.ones(2)})
        answer = ask(
            capsys,
            "export",
            "r",
            "--store",
            tmp_path / "s",
            "--out",
            tmp_path / "o",
            "--format",
            "torch",
            "--json",
        )
        assert answer.code == 0, answer.err
        assert answer.json["left_out"] == ["day"]
        assert list(torch.load(tmp_path / "o", weights_only=True)) == ["w"]
