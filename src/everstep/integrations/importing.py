"""A checkpoint made from other tools' files."""

from __future__ import annotations

import math
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from everstep.checkpointer.saving import Work, run
from everstep.checkpointer.together import alone
from everstep.errors import NotFound, UsageError
from everstep.events import Listener, silent
from everstep.format.box import Box
from everstep.format.dtypes import ITEM_BYTES
from everstep.format.entries import Container, Entry, Tensor
from everstep.format.index import Meta
from everstep.format.paths import join
from everstep.format.values import encode
from everstep.integrations.distributed import is_distributed, read_distributed
from everstep.integrations.huggingface import find_model
from everstep.integrations.safetensors_read import StoredTensor, read_safetensors
from everstep.integrations.torch_read import read_torch
from everstep.plan.save import plan_save
from everstep.repository.attempts import claim
from everstep.repository.catalogue import checkpoints, ensure_run
from everstep.repository.checkpoint import Checkpoint
from everstep.repository.repository import Repository
from everstep.state.conversion import flatten
from everstep.state.describe import encode_config
from everstep.state.flat import Flat, Piece
from everstep.transfer.memory import Arena
from everstep.transfer.pacer import Pacer
from everstep.transfer.stage import stage

__all__ = ["Foreign", "read_foreign", "save_foreign"]

_WORKERS = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Foreign:
    """What was read: the state in flat form, which refers to the files, and a configuration beside it."""

    flat: Flat
    config: Any


@dataclass(frozen=True, slots=True)
class _Mapped:
    """A `Source` that is a part of a mapped file."""

    memory: memoryview

    def view(self) -> memoryview:
        return self.memory

    def copy_to(self, into: memoryview) -> None:
        into[:] = self.memory


def read_foreign(path: Path, *, under: str) -> Foreign:
    """Read a safetensors file, a torch file, a Hugging Face folder, or a folder of torch's distributed checkpoint.

    Tensors of safetensors files and of model folders stand in a dict named ``under`` (the names are those
    of a model's state dict); the nesting of torch's own files is kept. Nothing is unpickled but with torch's
    ``weights_only``. Raises `NotFound`, `InvalidManifest`, `ForeignPickle`.
    """
    if path.is_dir() and is_distributed(path):
        return Foreign(flat=read_distributed(path), config=None)
    if path.is_dir():
        folder = find_model(path)
        return _model(folder.files, under, folder.config)
    if not path.is_file():
        raise NotFound(f"{path} is no file and no folder", hint="check the path", path=str(path))
    if path.suffix == ".safetensors":
        return _model((path,), under, None)
    return Foreign(flat=flatten(read_torch(path)), config=None)


def save_foreign(
    repository: Repository, run_name: str, step: int, foreign: Foreign, *, listener: Listener = silent
) -> Checkpoint:
    """Make it the checkpoint of ``step`` of a run, which may be new.

    Raises `UsageError` when the run has a checkpoint at this step already.
    """
    ensure_run(repository, run_name)
    if any(found.step == step for found in checkpoints(repository, run_name)):
        raise UsageError(
            f"run {run_name!r} has a checkpoint at step {step}", hint="name another step, or another run"
        )
    attempt = claim(repository, run_name, owner=f"import on {socket.gethostname()}")
    plan = plan_save(foreign.flat.pieces, rank=0, world=1, entries=foreign.flat.entries)
    arena = Arena()
    try:
        done = run(
            Work(
                repository=repository,
                together=alone(),
                topic="save/import",
                attempt=attempt,
                step=step,
                plan=plan.digest,
                entries=foreign.flat.entries,
                alike=None,
                staged=stage(foreign.flat, plan, arena),
                meta=Meta(config=encode_config(foreign.config)),
                base=None,
                pacer=Pacer(),
                workers=_WORKERS,
                check_finite=False,
                listener=listener,
            )
        )
    finally:
        arena.close()
    return done.checkpoint


def _model(files: tuple[Path, ...], under: str, config: Any) -> Foreign:
    if all(path.suffix == ".safetensors" for path in files):
        tensors: dict[str, StoredTensor] = {}
        for path in files:
            _add(tensors, read_safetensors(path), path)
        return Foreign(flat=_flat(tensors, under), config=config)
    loaded: dict[str, Any] = {}
    for path in files:
        _add(loaded, read_torch(path), path)
    return Foreign(flat=flatten({under: loaded}), config=config)


def _add(into: dict[str, Any], found: Mapping[str, Any], path: Path) -> None:
    twice = sorted(into.keys() & found.keys())
    if twice:
        raise UsageError(f"{path} has {twice[0]} once more", hint="the shards do not belong together")
    into.update(found)


def _flat(tensors: Mapping[str, StoredTensor], under: str) -> Flat:
    above = join("", under)
    entries: list[Entry] = [
        Container(path="", type="dict", keys=[encode(under)]),
        Container(path=above, type="dict", keys=[encode(name) for name in tensors]),
    ]
    pieces: list[Piece] = []
    for name, tensor in tensors.items():
        path = join(above, name)
        entries.append(Tensor(path=path, dtype=tensor.dtype, shape=tensor.shape, framework="torch"))
        pieces.append(
            Piece(
                path=path,
                dtype=tensor.dtype,
                box=Box.whole(tensor.shape),
                nbytes=math.prod(tensor.shape) * ITEM_BYTES[tensor.dtype],
                source=_Mapped(tensor.bytes),
            )
        )
    return Flat(entries=tuple(entries), pieces=tuple(pieces), synchronize=lambda: None)
