"""Folders of torch's own distributed checkpoint, in and out of a store; what a bad one may not do."""

import collections
import enum
import io
import os
import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.distributed.checkpoint as dcp

import everstep as es
from tests.cli.worlds import ask
from tests.integrations.dcp import folder_jobs
from tests.integrations.dcp.worlds import emptied, quiet, save, state_at


@pytest.fixture
def store(tmp_path):
    """An empty place for a store."""
    return str(tmp_path / "store")


def plain_state():
    """What torch reads with weights_only."""
    state = state_at(5)
    del state["rng"], state["numbers"], state["tags"]
    return {**state, "pair": (torch.ones(2), "x", 3)}


def written(folder, state):
    """The folder, by torch's own writer."""
    with quiet():
        dcp.save(state, checkpoint_id=folder, no_dist=True)
    return folder


def read(folder, state):
    """The folder, by torch's own reader."""
    with quiet():
        dcp.load(state, checkpoint_id=folder, no_dist=True)
    return state


class TestImport:
    def test_all_of_it_comes_in(self, store, tmp_path, capsys):
        """Tensors and objects, nested as they were."""
        state = plain_state()
        folder = written(tmp_path / "dcp", state)
        answer = ask(capsys, "import", folder, "--run", "in", "--step", "3", "--store", store, "--json")
        assert answer.code == 0, answer.err
        found = es.load(store, "in")
        assert torch.equal(found["model"]["embed.weight"], state["model"]["embed.weight"])
        assert found["model"]["head/bias"].dtype is torch.bfloat16
        assert found["model"]["none"].shape == (0, 4)
        assert found["optimizer"]["param_groups"] == state["optimizer"]["param_groups"]
        assert found["pair"][1:] == ("x", 3)
        for name in ("epoch", "name", "raw", "text", "nothing", "history"):
            assert found[name] == state[name], name
        assert ask(capsys, "verify", "in", "--store", store).code == 0

    def test_shards_of_many_ranks_come_in_as_one_tensor(self, ranks, store, tmp_path, capsys):
        """Chunks of a DTensor, in a file of each rank."""
        ranks.run(folder_jobs.write, str(tmp_path / "dcp"))
        assert (
            ask(capsys, "import", tmp_path / "dcp", "--run", "in", "--step", "0", "--store", store).code == 0
        )
        assert torch.equal(es.load(store, "in")["w"], torch.arange(63.0).reshape(9, 7))

    def test_what_each_rank_saved_for_itself_says_so(self, store, tmp_path, capsys):
        """use_collectives=False leaves no whole."""
        folder = tmp_path / "dcp"
        with quiet():
            dcp.save({"a": torch.ones(1)}, checkpoint_id=folder, no_dist=True, use_collectives=False)
        answer = ask(capsys, "import", folder, "--run", "in", "--step", "0", "--store", store)
        assert answer.code == 2
        assert "use_collectives=False" in answer.err


class Bomb:
    """Runs a command when it is unpickled."""

    def __init__(self, fuse):
        self.fuse = fuse

    def __reduce__(self):
        return (os.system, (f"touch {self.fuse}",))


class TestBadFolders:
    @pytest.fixture
    def folder(self, tmp_path):
        """A good one."""
        return written(tmp_path / "dcp", {"w": torch.ones(4), "n": 3})

    def refused(self, capsys, folder, store):
        """The answer to an import of it, which made nothing."""
        answer = ask(capsys, "import", folder, "--run", "bad", "--step", "0", "--store", store)
        assert answer.err.startswith("error["), answer.err
        assert ask(capsys, "show", "bad", "--store", store).code == 3
        return answer

    def changed(self, folder, change):
        """The metadata, changed and pickled again."""
        path = folder / ".metadata"
        metadata = pickle.loads(path.read_bytes())
        made = change(metadata)
        path.write_bytes(pickle.dumps(metadata if made is None else made))

    @pytest.mark.parametrize("protocol", range(2, 6))
    def test_fault_26_a_pickle_that_would_run_something_is_refused_unexecuted(
        self, folder, store, tmp_path, capsys, protocol
    ):
        """Its global is named; nothing ran, nothing was made."""
        fuse = tmp_path / "fuse"
        (folder / ".metadata").write_bytes(pickle.dumps({"a": Bomb(fuse)}, protocol=protocol))
        answer = self.refused(capsys, folder, store)
        assert answer.code == 2
        assert answer.err.startswith("error[E-FOREIGN-PICKLE]")
        assert "posix.system" in answer.err
        assert not fuse.exists()

    @pytest.mark.parametrize("name", ["eval", "setattr", "__import__", "exec"])
    def test_builtins_are_no_part_of_it(self, folder, store, capsys, name):
        """Also those that look harmless."""
        (folder / ".metadata").write_bytes(f"cbuiltins\n{name}\n(S'1'\ntR.".encode())
        assert f"builtins.{name}" in self.refused(capsys, folder, store).err

    @pytest.mark.parametrize(
        "of", ["ctorch\nSize\n", "Vtorch\n", "ctorch.distributed.checkpoint.metadata\nMetadata\n"]
    )
    def test_getattr_is_for_members_of_enums_alone(self, folder, store, capsys, of):
        """Python 3.11.0 to 3.11.3 pickle them so; of anything else it is refused."""
        (folder / ".metadata").write_bytes(f"cbuiltins\ngetattr\n({of}V__init__\ntR.".encode())
        assert "builtins.getattr" in self.refused(capsys, folder, store).err

    def test_enums_as_python_3_11_pickled_them_first(self, folder, store, capsys):
        """A member as an attribute of its class, by name."""
        metadata = pickle.loads((folder / ".metadata").read_bytes())

        class Early(pickle.Pickler):
            def reducer_override(self, value):
                member = isinstance(value, enum.Enum)
                return (getattr, (type(value), value.name)) if member else NotImplemented

        with (folder / ".metadata").open("wb") as file:
            Early(file).dump(metadata)
        assert b"getattr" in (folder / ".metadata").read_bytes()
        assert ask(capsys, "import", folder, "--run", "early", "--step", "0", "--store", store).code == 0
        assert es.load(store, "early")["n"] == 3

    def test_a_bomb_in_an_object_is_refused_unexecuted(self, folder, store, tmp_path, capsys):
        """Objects are read with weights_only."""
        fuse = tmp_path / "fuse"
        body = io.BytesIO()
        torch.save(Bomb(fuse), body)
        (folder / "evil.distcp").write_bytes(body.getvalue())

        def change(metadata):
            for index, place in metadata.storage_data.items():
                if index.fqn == "n":
                    place.relative_path, place.offset, place.length = "evil.distcp", 0, len(body.getvalue())

        self.changed(folder, change)
        answer = self.refused(capsys, folder, store)
        assert answer.err.startswith("error[E-FOREIGN-PICKLE]")
        assert not fuse.exists()

    @pytest.mark.parametrize(
        "path", ["../secret", "/etc/passwd", "a/../../secret", "a\\b", "", ".", "..", "x\0y", "~/x", "a/b"]
    )
    def test_fault_27_nothing_outside_the_folder_is_read(self, folder, store, capsys, path):
        """Absolute, climbing and odd names are refused by field."""
        (folder.parent / "secret").write_bytes((folder / "__0_0.distcp").read_bytes())

        def change(metadata):
            for place in metadata.storage_data.values():
                place.relative_path = path

        self.changed(folder, change)
        answer = self.refused(capsys, folder, store)
        assert answer.code == 6
        assert "relative_path" in answer.err

    def test_a_link_is_not_followed(self, folder, store, capsys):
        """It may lead anywhere."""
        data = folder / "__0_0.distcp"
        data.rename(folder.parent / "elsewhere")
        data.symlink_to(folder.parent / "elsewhere")
        assert self.refused(capsys, folder, store).code == 3

    def test_sizes_are_held_to_each_other(self, folder, store, capsys):
        """Ranges past the end, negative ones, chunks outside their tensor, missing ones."""

        def past(metadata):
            for place in metadata.storage_data.values():
                place.length = 1 << 40

        def negative(metadata):
            for place in metadata.storage_data.values():
                place.offset = -1

        def outside(metadata):
            metadata.state_dict_metadata["w"].chunks[0].sizes = torch.Size([9])

        def larger(metadata):
            metadata.state_dict_metadata["w"].size = torch.Size([8])

        def missing(metadata):
            metadata.storage_data.clear()

        def other(metadata):
            metadata.state_dict_metadata["w"].chunks[0].sizes = torch.Size([3])

        good = (folder / ".metadata").read_bytes()
        for change in (past, negative, outside, missing):
            (folder / ".metadata").write_bytes(good)
            self.changed(folder, change)
            assert self.refused(capsys, folder, store).code == 6, change
        for change in (larger, other):  # seen when the bytes come, or the checkpoint is put together
            (folder / ".metadata").write_bytes(good)
            self.changed(folder, change)
            answer = ask(capsys, "import", folder, "--run", "late", "--step", "0", "--store", store)
            assert answer.code not in {0, 70}, answer
            assert "error[" in answer.err
            assert es.Checkpointer(store, "late").latest() is None

    @pytest.mark.parametrize("kept", [0, 1, 10, 100, -1, -2])
    def test_a_metadata_cut_short_says_so(self, folder, store, capsys, kept):
        """In words."""
        path = folder / ".metadata"
        path.write_bytes(path.read_bytes()[:kept])
        assert self.refused(capsys, folder, store).code in {2, 6}

    @pytest.mark.parametrize(
        "body",
        [b".", b"N.", b"}.", b"(l.", b"0.", b"t.", b"e.", b"s.", b"\x80\x04h\x05.", b"b.", b"R.", b"\x81."],
    )
    def test_nonsense_is_words(self, folder, store, capsys, body):
        """Whatever the opcodes do to the stack."""
        (folder / ".metadata").write_bytes(body)
        assert self.refused(capsys, folder, store).code in {2, 6}

    def test_any_flipped_bit_of_the_metadata_is_words_or_harmless(self, folder, store, capsys):
        """Never an error of Python's, and never a call."""
        from everstep.errors import EverstepError
        from everstep.integrations.dcp.importing import read_dcp

        good = (folder / ".metadata").read_bytes()
        for n in range(0, 8 * len(good), 7):
            body = bytearray(good)
            body[n // 8] ^= 1 << n % 8
            (folder / ".metadata").write_bytes(body)
            try:
                read_dcp(folder)
            except EverstepError:
                continue

    def test_an_ordered_dict_and_a_path_are_plain(self, tmp_path, store, capsys):
        """A checkpoint_id that is a path stands in the metadata; state dicts are ordered."""
        state = collections.OrderedDict(w=torch.ones(3), more=collections.OrderedDict(n=1))
        folder = written(tmp_path / "ordered", state)
        assert ask(capsys, "import", folder, "--run", "in", "--step", "0", "--store", store).code == 0
        assert es.load(store, "in")["more"] == {"n": 1}


class TestExport:
    def test_torchs_reader_reads_it(self, store, tmp_path, capsys):
        """All of it, as it was."""
        state = plain_state()
        save(store, "r", 5, state)
        out = tmp_path / "out"
        answer = ask(capsys, "export", "r", "--format", "dcp", "--out", out, "--store", store, "--json")
        assert answer.code == 0, answer.err
        assert {Path(path).name for path in answer.json["files"]} == {".metadata", "__0_0.distcp"}
        found = read(out, emptied(state))
        assert torch.equal(found["model"]["embed.weight"], state["model"]["embed.weight"])
        assert found["optimizer"]["param_groups"] == state["optimizer"]["param_groups"]
        assert found["text"] == state["text"]
        assert found["pair"][1:] == ("x", 3)

    def test_there_and_back_again(self, store, tmp_path, capsys):
        """An export that is imported is the same checkpoint, by diff."""
        save(store, "r", 5, plain_state())
        ask(capsys, "export", "r", "--format", "dcp", "--out", tmp_path / "out", "--store", store)
        ask(capsys, "import", tmp_path / "out", "--run", "again", "--step", "5", "--store", store)
        assert ask(capsys, "diff", "r@5", "again@5", "--store", store).code == 0

    def test_a_part_has_its_own_names(self, store, tmp_path, capsys):
        """--select model: the model's state dict. What a Checkpointer saved goes out as well, views included."""
        model = torch.nn.Linear(3, 2)
        base = torch.arange(6.0)
        with es.Checkpointer(store, "c") as ckpt:
            state = {"model": model, "view": base[2:].view(2, 2).t(), "base": base, "array": np.ones(3)}
            ckpt.save(1, state).wait()
        ask(
            capsys,
            "export",
            "c",
            "--format",
            "dcp",
            "--select",
            "model",
            "--out",
            tmp_path / "m",
            "--store",
            store,
        )
        found = read(tmp_path / "m", {"weight": torch.zeros(2, 3)})
        assert torch.equal(found["weight"], model.weight)
        ask(
            capsys,
            "export",
            "c",
            "--format",
            "dcp",
            "--skip",
            "model",
            "--out",
            tmp_path / "v",
            "--store",
            store,
        )
        found = read(
            tmp_path / "v", {"view": torch.zeros(2, 2), "array": torch.zeros(3, dtype=torch.float64)}
        )
        assert torch.equal(found["view"], base[2:].view(2, 2).t())
        assert found["array"].sum() == 3

    def test_what_weights_only_refuses_is_left_out_and_listed(self, store, tmp_path, capsys):
        """As in a torch file."""
        save(store, "r", 1, {"w": torch.ones(2), "where": __import__("pathlib").PurePosixPath("a")})
        answer = ask(
            capsys, "export", "r", "--format", "dcp", "--out", tmp_path / "o", "--store", store, "--json"
        )
        assert answer.json["left_out"] == ["where"]
        assert read(tmp_path / "o", {"w": torch.zeros(2)})["w"].sum() == 2

    def test_a_folder_with_something_in_it_stays(self, store, tmp_path, capsys):
        """Also with --force; an empty one is filled."""
        save(store, "r", 1, {"w": torch.ones(2)})
        out = tmp_path / "out"
        out.mkdir()
        words = ["export", "r", "--format", "dcp", "--out", out, "--store", store]
        assert ask(capsys, *words).code == 0
        before = sorted(out.iterdir())
        assert ask(capsys, *words, "--force").code == 2
        assert sorted(out.iterdir()) == before
        assert [path.name for path in tmp_path.iterdir() if path.name.endswith(".partial")] == []

    def test_nothing_selected_says_so(self, store, tmp_path, capsys):
        """And makes no folder."""
        save(store, "r", 1, {"w": torch.ones(2)})
        words = [
            "export",
            "r",
            "--format",
            "dcp",
            "--out",
            tmp_path / "o",
            "--select",
            "no",
            "--store",
            store,
        ]
        assert ask(capsys, *words).code == 2
        assert not (tmp_path / "o").exists()


@pytest.mark.parametrize("verb", ["import", "export"])
def test_without_torch_it_says_what_to_install(tmp_path, verb):
    """The core works without it; this needs the extra."""
    store = str(tmp_path / "store")
    save(store, "r", 1, {"w": torch.ones(2)})
    folder = written(tmp_path / "in", {"w": torch.ones(2)})
    words = {
        "import": ["import", str(folder), "--run", "x", "--step", "1", "--store", store],
        "export": ["export", "r", "--format", "dcp", "--out", str(tmp_path / "o"), "--store", store],
    }[verb]
    code = (
        "import sys; sys.modules['torch'] = None\n"
        f"from everstep.cli.entry import run\nsys.exit(run({words!r}))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 2, done.stderr
    assert "everstep[torch]" in done.stderr
