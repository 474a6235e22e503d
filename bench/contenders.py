"""The ways to save a training, each with the same four verbs."""

import logging
import os
import shutil
import warnings
from pathlib import Path

import torch

import everstep as es

__all__ = ["CONTENDERS", "cached_stager"]


def cached_stager():
    """DCP's stager that keeps its memory from save to save, where this version of torch has it."""
    from torch.distributed.checkpoint.staging import DefaultStager, StagingOptions

    options = StagingOptions(
        use_pinned_memory=False,
        use_shared_memory=False,
        use_async_staging=False,
        use_non_blocking_copy=False,
    )
    return DefaultStager(options)


def _sync(path):
    fd = os.open(path, os.O_RDONLY)
    os.fsync(fd)
    os.close(fd)


class Everstep:
    """This package, by hand."""

    def __init__(self, training, folder):
        self._state = {"model": training.model, "optimizer": training.optimizer}
        self._ckpt = es.Checkpointer(str(folder), "bench", listener=lambda _event: None)
        self._ckpt.restore(self._state)  # as every launch does; begins to touch the staging memory

    def save(self, number):
        return self._ckpt.save(number, self._state)

    def finish(self, pending):
        pending.wait()

    def load(self, number):
        self._ckpt.restore(self._state, step=number)

    def forget(self, number):
        """Keeps all: an object never changes and nothing is pruned yet."""


class _Files:
    def __init__(self, training, folder):
        self._training = training
        self._folder = Path(folder)

    def finish(self, pending):
        """Durable already."""

    def _place(self, number):
        return self._folder / str(number)

    def forget(self, number):
        place = self._place(number)
        shutil.rmtree(place) if place.is_dir() else place.unlink()


class TorchSave(_Files):
    """torch.save with the fsync that it leaves out."""

    def save(self, number):
        state = {
            "model": self._training.model.state_dict(),
            "optimizer": self._training.optimizer.state_dict(),
        }
        torch.save(state, self._place(number))
        _sync(self._place(number))

    def load(self, number):
        state = torch.load(self._place(number), weights_only=True)
        self._training.model.load_state_dict(state["model"])
        self._training.optimizer.load_state_dict(state["optimizer"])


class Safetensors(_Files):
    """safetensors with the fsync that it leaves out; loads into the live tensors."""

    def save(self, number):
        from safetensors.torch import save_file

        save_file(self._training.tensors(), self._place(number))
        _sync(self._place(number))

    def load(self, number):
        from safetensors import safe_open

        with safe_open(self._place(number), framework="pt") as file, torch.no_grad():
            for name, tensor in self._training.tensors().items():
                tensor.copy_(file.get_tensor(name))


class Dcp(_Files):
    """torch.distributed.checkpoint, synchronous, two threads."""

    def __init__(self, training, folder):
        super().__init__(training, folder)
        os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
        torch.distributed.init_process_group(
            "gloo", rank=0, world_size=1, store=torch.distributed.HashStore()
        )
        logging.disable(logging.WARNING)

    def _writer(self, number):
        from torch.distributed.checkpoint import FileSystemWriter

        return FileSystemWriter(self._place(number), thread_count=2, sync_files=True)

    def save(self, number):
        import torch.distributed.checkpoint as dcp

        dcp.save(self._training.tensors(), storage_writer=self._writer(number))

    def load(self, number):
        import torch.distributed.checkpoint as dcp

        dcp.load(self._training.tensors(), checkpoint_id=self._place(number))


class DcpAsync(Dcp):
    """torch.distributed.checkpoint, asynchronous, with its cached stager where this version has it."""

    def __init__(self, training, folder):
        super().__init__(training, folder)
        self._stager = cached_stager()

    def save(self, number):
        import torch.distributed.checkpoint as dcp

        return dcp.async_save(
            self._training.tensors(), storage_writer=self._writer(number), async_stager=self._stager
        )

    def finish(self, pending):
        getattr(pending, "upload_completion", pending).result()


CONTENDERS = {
    "everstep": Everstep,
    "torch.save": TorchSave,
    "safetensors": Safetensors,
    "DCP": Dcp,
    "DCP async": DcpAsync,
}
warnings.filterwarnings("ignore")
