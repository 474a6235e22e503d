"""Folders of other formats: where a run may begin, and what it may leave behind, through torch's own readers."""

from __future__ import annotations

from typing import Any

import torch
from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageWriter
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import save
from torchtitan.components.checkpointer import MODEL
from torchtitan.tools import filesystem

from everstep.errors import NotFound, UsageError

__all__ = ["export_huggingface", "load_folder", "load_huggingface"]


def load_folder(states: dict[str, Any], folder: str, *, model_only: bool) -> None:
    """Load a checkpoint that torchtitan's own manager wrote (DCP): the model, or all parts.

    torch reads the folder's metadata by unpickling it, so it must be from somebody you trust. All ranks call it.
    """
    _check_there(folder)
    model = states[MODEL]
    others = {} if model_only else {name: part for name, part in states.items() if name != MODEL}
    wanted = {**others, **model.state_dict()}
    load(wanted, checkpoint_id=folder)
    model.load_state_dict(wanted)


def load_huggingface(states: dict[str, Any], adapter: Any, folder: str | None, *, quantized: bool) -> None:
    """Load the model from safetensors with Hugging Face's names; ``folder`` None: the model's own assets.

    All ranks call it. Raises `UsageError` when torchtitan has no adapter for the model.
    """
    adapter = _checked(adapter, "initial_load_in_hf")
    where = folder or adapter.hf_assets_path
    _check_there(where)
    model = states[MODEL]
    named = adapter.to_hf(model.state_dict())
    load(named, storage_reader=adapter.get_hf_storage_reader(where, quantized))
    model.load_state_dict(adapter.from_hf(named))


def export_huggingface(states: dict[str, Any], adapter: Any, folder: str, *, dtype: torch.dtype) -> None:
    """Write the model as safetensors with Hugging Face's names, in files as its assets have. All ranks call it."""
    adapter = _checked(adapter, "last_save_in_hf")
    model = {
        name: value.to(dtype) if isinstance(value, torch.Tensor) and value.is_floating_point() else value
        for name, value in states[MODEL].state_dict().items()
    }
    writer = HuggingFaceStorageWriter(
        path=folder,
        fqn_to_index_mapping=adapter.fqn_to_index_mapping,
        save_distributed=True,
        enable_consolidation=True,
    )
    save(adapter.to_hf(model), storage_writer=writer)


def _checked(adapter: Any, setting: str) -> Any:
    if adapter is None:
        raise UsageError(
            f"checkpoint.{setting} is set, and the model has no adapter to Hugging Face's names",
            hint=f"set checkpoint.{setting} to False, or give the model's spec a state_dict_adapter",
        )
    return adapter


def _check_there(folder: str | None) -> None:
    if not folder or not filesystem.isdir(folder):
        raise NotFound(
            f"there is no folder {folder} to load from",
            hint="checkpoint.initial_load_path names a folder that every rank can read",
        )
