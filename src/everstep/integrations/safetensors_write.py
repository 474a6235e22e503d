"""A checkpoint's tensors as safetensors files, straight from the store into the files, without torch."""

from __future__ import annotations

import json
import math
import mmap
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from everstep.errors import UsageError
from everstep.format.box import Box
from everstep.format.dtypes import ITEM_BYTES, SAFETENSORS_NAME
from everstep.integrations.chosen import choose
from everstep.integrations.exported import Exported
from everstep.integrations.files import Temporaries
from everstep.state.saved import Place
from everstep.transfer.contents import Contents, Part

__all__ = ["export_safetensors"]

_ALIGNED = 8
"""The safetensors format wants the header's length to be a multiple of this."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Item:
    """One tensor of a file: its name there, and where its bytes are in the checkpoint."""

    name: str
    place: Place

    @property
    def dtype(self) -> str:
        return self.place.base.dtype

    @property
    def shape(self) -> tuple[int, ...]:
        return self.place.shape

    @property
    def item_bytes(self) -> int:
        return ITEM_BYTES[self.dtype]

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * self.item_bytes


def export_safetensors(
    contents: Contents,
    out: Path,
    *,
    select: Sequence[str] = (),
    skip: Sequence[str] = (),
    slashes: bool = False,
    shard_bytes: int = 5 * 10**9,
    force: bool = False,
) -> Exported:
    """Write the selected tensors to ``out``, or to numbered shards beside an index when they are many.

    Names are those of `choose`. A tied tensor is written under each of its names, so that each name can be
    loaded. Over ``shard_bytes`` the files are ``<stem>-00001-of-0000N.safetensors`` and
    ``<stem>.safetensors.index.json``, as Hugging Face reads them. Plain values are no tensors and are left
    out. Raises `UsageError` for a file that exists (without ``force``) and for dtypes that the format lacks.
    """
    chosen = choose(contents.entries, select=select, skip=skip, slashes=slashes)
    items = [_Item(name=name, place=place) for name, place in chosen.tensors.items()]
    _check_dtypes(items)
    files = _files(out, _grouped(items, shard_bytes))
    index = out.with_name(f"{out.name}.index.json")
    targets = [*files, index] if len(files) > 1 else [*files]
    metadata = _metadata(contents)
    contents.check_readable(item.place.base.path for item in items)
    with Temporaries(targets, force=force) as temporaries:
        for target, group in files.items():
            _write(contents, temporaries[target], group, metadata)
        if index in temporaries:
            temporaries[index].write_bytes(_index(files))
    return Exported(
        files=tuple(targets),
        tensors=len(items),
        bytes=sum(item.nbytes for item in items),
        left_out=chosen.left_out,
    )


def _check_dtypes(items: Sequence[_Item]) -> None:
    lacking = {item.name: item.dtype for item in items if item.dtype not in SAFETENSORS_NAME}
    if lacking:
        named = ", ".join(f"{name} ({dtype})" for name, dtype in list(lacking.items())[:5])
        raise UsageError(
            f"safetensors has no form for {len(lacking)} of the selected tensors: {named}",
            hint="leave them out with --skip, or use --format torch",
            names=list(lacking),
        )


def _grouped(items: Sequence[_Item], shard_bytes: int) -> list[list[_Item]]:
    """The items in order, cut where a group would grow over ``shard_bytes``."""
    groups: list[list[_Item]] = [[]]
    held = 0
    for item in items:
        if groups[-1] and held + item.nbytes > shard_bytes:
            groups.append([])
            held = 0
        groups[-1].append(item)
        held += item.nbytes
    return groups


def _files(out: Path, groups: Sequence[list[_Item]]) -> dict[Path, list[_Item]]:
    if len(groups) == 1:
        return {out: groups[0]}
    stem = out.name.removesuffix(".safetensors")
    return {
        out.with_name(f"{stem}-{number:05d}-of-{len(groups):05d}.safetensors"): group
        for number, group in enumerate(groups, 1)
    }


def _metadata(contents: Contents) -> dict[str, str]:
    """What a safetensors header may hold beside tensors; ``format`` is what transformers asks for."""
    checkpoint = contents.checkpoint
    return {
        "format": "pt",
        "everstep.run": checkpoint.run,
        "everstep.step": str(checkpoint.step),
        "everstep.save": str(checkpoint.save),
        "everstep.manifest": checkpoint.manifest,
    }


def _index(files: Mapping[Path, Sequence[_Item]]) -> bytes:
    """Hugging Face's index of shards: which file has which tensor."""
    total = sum(item.nbytes for group in files.values() for item in group)
    weights = {item.name: path.name for path, group in files.items() for item in group}
    return json.dumps({"metadata": {"total_size": total}, "weight_map": weights}, indent=2).encode()


def _write(contents: Contents, path: Path, items: Sequence[_Item], metadata: Mapping[str, str]) -> None:
    """One file: its header, then every tensor read from the store into its place.

    The room is allocated first: a full disk is an error here, and not a SIGBUS in the middle of a page.
    """
    ordered = sorted(items, key=lambda item: (-item.item_bytes, item.name))
    header, starts, end = _header(ordered, metadata)
    with path.open("xb+") as file:
        if sys.platform == "linux":
            os.posix_fallocate(file.fileno(), 0, end)  # a full disk is told now, by an error
        else:
            file.truncate(end)
        mapped = mmap.mmap(file.fileno(), end)
        mapped[: len(header)] = header
        memory = memoryview(mapped)
        places = [memory[start : start + item.nbytes] for item, start in zip(ordered, starts, strict=True)]
        contents.read_into(
            [
                Part(path=item.place.base.path, box=Box.whole(item.place.base.shape), into=place)
                for item, place in zip(ordered, places, strict=True)
                if item.place.whole
            ]
        )
        for item, place in zip(ordered, places, strict=True):
            if not item.place.whole:
                _gather(contents, item, place)
        mapped.flush()


def _header(items: Sequence[_Item], metadata: Mapping[str, str]) -> tuple[bytes, list[int], int]:
    """The file's first bytes, where each tensor begins, and the file's size."""
    offset = 0
    fields: dict[str, object] = {"__metadata__": dict(metadata)}
    offsets: list[int] = []
    for item in items:
        fields[item.name] = {
            "dtype": SAFETENSORS_NAME[item.dtype],
            "shape": list(item.shape),
            "data_offsets": [offset, offset + item.nbytes],
        }
        offsets.append(offset)
        offset += item.nbytes
    body = json.dumps(fields, separators=(",", ":")).encode()
    body += b" " * (-len(body) % _ALIGNED)
    header = len(body).to_bytes(8, "little") + body
    return header, [len(header) + start for start in offsets], len(header) + offset


def _gather(contents: Contents, item: _Item, into: memoryview) -> None:
    """Copy the elements that a view names out of the tensor that has them."""
    base, view, size = item.place.base, item.place.view, item.item_bytes
    [filled] = contents.read([(base.path, Box.whole(base.shape))])
    elements = np.ndarray(
        (*view.shape, size),
        dtype=np.uint8,
        buffer=filled,
        offset=view.offset * size,
        strides=(*(stride * size for stride in view.strides), 1),
    )
    into[:] = np.ascontiguousarray(elements).reshape(-1).data
