"""A model folder as Hugging Face lays it out: config.json beside safetensors or torch files."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec

from everstep.errors import InvalidManifest, NotFound

__all__ = ["ModelFolder", "find_model"]

_NAMES: Final = ("model.safetensors", "pytorch_model.bin")
"""Whole files, in the order of preference; sharded, each has an index of the same name with .index.json."""

_MAX_JSON = 256 * 2**20


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFolder:
    """The files with weights, and the configuration (None where there is no config.json)."""

    files: tuple[Path, ...]
    config: Any


def find_model(folder: Path) -> ModelFolder:
    """What a folder holds, by its names alone.

    Raises `NotFound` when it has no weights under the usual names, `InvalidManifest` for an index that
    names files outside the folder.
    """
    config = _json(folder / "config.json") if (folder / "config.json").is_file() else None
    for name in _NAMES:
        if (folder / name).is_file():
            return ModelFolder(files=(folder / name,), config=config)
        index = folder / f"{name}.index.json"
        if index.is_file():
            return ModelFolder(files=_shards(folder, index), config=config)
    raise NotFound(
        f"{folder} has no weights: none of {', '.join(_NAMES)} or their indexes",
        hint="name the file itself, or a folder made by save_pretrained",
        path=str(folder),
    )


def _shards(folder: Path, index: Path) -> tuple[Path, ...]:
    fields = _json(index)
    weights = fields.get("weight_map") if isinstance(fields, dict) else None
    if not isinstance(weights, dict) or not all(isinstance(name, str) for name in weights.values()):
        raise InvalidManifest(
            f"{index}: weight_map is no table of names", path=str(index), field="weight_map"
        )
    names = sorted(set(weights.values()))
    for name in names:
        if name in {"", ".", ".."} or "/" in name or "\\" in name or "\0" in name:
            raise InvalidManifest(
                f"{index}: weight_map names {name!r}, which is not a file of the folder",
                path=str(index),
                field="weight_map",
            )
        if not (folder / name).is_file():
            raise NotFound(
                f"{folder / name} is missing; {index.name} names it", hint="fetch the folder again"
            )
    return tuple(folder / name for name in names)


def _json(path: Path) -> Any:
    if path.stat().st_size > _MAX_JSON:
        raise InvalidManifest(f"{path} has more than {_MAX_JSON} bytes", path=str(path), field="size")
    try:
        return msgspec.json.decode(path.read_bytes())
    except (msgspec.DecodeError, RecursionError) as error:
        raise InvalidManifest(f"{path} is not JSON: {error}", path=str(path), field="json") from None
