"""Read the newest checkpoint of a run from a local store, by docs/format.md alone: python reader.py STORE RUN."""

import base64
import json
import struct
import sys
from collections.abc import Callable
from itertools import product
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
from blake3 import blake3


def verified(body: bytes, digest: str, what: object) -> bytes:
    """The bytes, if they are what was written."""
    if blake3(body).hexdigest() != digest:
        raise ValueError(f"{what} is damaged")
    return body


def record(file: Path) -> Any:
    """A small object, without its last field, the digest of the rest."""
    body = file.read_bytes()
    return json.loads(verified(body[:-76] + b"}", body[-66:-2].decode("latin-1"), file))


def described(file: Path, digest: str) -> Any:
    """An index or a manifest, whose digest others name."""
    return json.loads(verified(file.read_bytes(), digest, file))


def value(stored: Any) -> Any:
    """A plain value; kinds that are rarer than these stay as they are stored."""
    if isinstance(stored, list):
        return [value(item) for item in stored]
    make = KINDS.get(stored["$"]) if isinstance(stored, dict) else None
    return make(stored) if make else stored


KINDS: dict[str, Callable[[Any], Any]] = {
    "int": lambda stored: int(stored["hex"], 16),
    "float": lambda stored: struct.unpack(">d", bytes.fromhex(stored["bits"]))[0],
    "bytes": lambda stored: base64.b64decode(stored["b64"]),
    "tuple": lambda stored: tuple(map(value, stored["items"])),
    "dict": lambda stored: dict(zip(map(value, stored["keys"]), map(value, stored["values"]), strict=True)),
}


def pruned(tombs: Path, save: str) -> bool:
    """Whether the last tomb of a save, which may have been undeleted several times, still holds."""
    names = {file.name for file in tombs.glob(f"{save}*")}
    count = sum(not name.endswith(".undeleted") for name in names)
    return count > 0 and f"{save}.{count - 1}.undeleted" not in names


def newest(store: Path, run: str) -> tuple[Any, Path]:
    """The manifest of the newest checkpoint and its folder; sorted names begin with the newest."""
    head = record(store / "everstep.json")
    assert (head["format"], head["digest"]) == (1, "blake3-256"), "a newer format"
    for file in sorted((store / "runs" / run / "commits").glob("*.json")):
        commit = record(file)
        if commit["state"] == "committed" and not pruned(store / "runs" / run / "tombs", commit["save"]):
            folder = store / "runs" / run / "saves" / commit["save"]
            return described(folder / f"manifest.{commit['manifest']}.json", commit["manifest"]), folder
    raise LookupError(f"run {run} has no checkpoint")


def read(store: Path, run: str) -> dict[str, Any]:
    """Every leaf by its path: plain values, and arrays (of bare bytes where NumPy lacks the element type)."""
    manifest, folder = newest(store, run)
    entries = {entry["path"]: entry for entry in manifest["entries"]}
    leaves = {path: value(entry["value"]) for path, entry in entries.items() if entry["kind"] == "value"}
    stored: dict[str, np.ndarray] = {}
    found: dict[str, dict[Any, int]] = {}
    for rank, digest, _size in manifest["indexes"]:
        index = described(folder / f"rank-{rank:07d}.{digest}.json", digest)
        for shard in index["shards"]:
            entry, sizes = entries[shard["path"]], shard["sizes"]
            check_box(entry, shard, rank)
            body = bytearray()
            for chunk, pack, offset, length in shard["chunks"]:
                with (store / index["packs"][pack]).open("rb") as opened:
                    opened.seek(offset)
                    body += verified(opened.read(length), chunk, f"{shard['path']} in {opened.name}")
            whole = stored.setdefault(entry["path"], np.zeros(entry["shape"], element(entry, sizes, body)))
            box = tuple(slice(at, at + n) for at, n in zip(shard["offsets"], sizes, strict=True))
            whole[box] = np.frombuffer(body, whole.dtype).reshape(sizes)
            found.setdefault(entry["path"], {})[str(box)] = prod(sizes)
    for path, entry in entries.items():
        if entry["kind"] == "tensor":
            if sum(found.get(path, {}).values()) != prod(entry["shape"]):
                raise ValueError(f"{path} is not all there")
            stored.setdefault(path, np.zeros(entry["shape"], element(entry, [], b"")))
    for path, entry in entries.items():
        if entry["kind"] in ("tensor", "alias"):
            of = entries[entry.get("of", path)]
            view = entry if "of" in entry and "shape" in entry else of.get("extra", {}).get("view")
            leaves[path] = seen(stored[of["path"]], view) if view else stored[of["path"]]
    return leaves


def element(entry: Any, sizes: list[int], body: bytes | bytearray) -> np.dtype:
    """NumPy's type for the elements of a box, or bare bytes."""
    try:
        known: np.dtype = np.dtype(entry["dtype"])
        return known.newbyteorder("<")
    except TypeError:
        return np.dtype(f"V{len(body) // prod(sizes) if 0 not in sizes else 1}")


def check_box(entry: Any, shard: Any, rank: int) -> None:
    """A tensor's layout says which boxes a rank of its mesh holds; others are there for leaves of several stages."""
    held = boxes(entry["layout"], entry["shape"], rank) if "layout" in entry else set()
    if held and prod(shard["sizes"]) and (tuple(shard["offsets"]), tuple(shard["sizes"])) not in held:
        raise ValueError(f"rank {rank} has a box of {shard['path']} that is not its own")


def boxes(layout: Any, shape: list[int], rank: int) -> set[tuple[tuple[int, ...], tuple[int, ...]]]:
    """Offsets and sizes of the boxes that a rank holds of a tensor of this shape, by the layout alone."""
    mesh, found = layout["mesh"], set()
    strides = layout.get("strides") or [prod(mesh[d + 1 :]) for d in range(len(mesh))]
    for number, at in enumerate(product(*map(range, mesh))):
        there = layout.get("start", 0) + sum(c * step for c, step in zip(at, strides, strict=True))
        if (layout["ranks"][number] if "ranks" in layout else there) != rank:
            continue
        kept = [np.arange(n) for n in shape]
        for c, n, placement in zip(at, mesh, layout["placements"], strict=True):
            if placement != "replicate":
                _, d, *factor = placement.split(":")
                kept[int(d)] = np.concatenate(
                    [cut(part, n)[c] for part in cut(kept[int(d)], int(*factor or (1,)))]
                )
        runs = [np.split(left, np.flatnonzero(np.diff(left) != 1) + 1) for left in kept]
        for box in product(*([run for run in each if len(run)] for each in runs)):
            found.add((tuple(int(run[0]) for run in box), tuple(len(run) for run in box)))
    return found


def cut(elements: np.ndarray, parts: int) -> list[np.ndarray]:
    """Consecutive parts of one size, rounded up; the last ones are shorter, or empty."""
    size = -(-len(elements) // parts)
    return [elements[n * size : (n + 1) * size] for n in range(parts)]


def seen(array: np.ndarray, view: Any) -> np.ndarray:
    """A view by shape, strides and offset in elements, which must be inside."""
    shape, strides, offset = view["shape"], view.get("strides", []), view.get("offset", 0)
    last = offset + sum((n - 1) * step for n, step in zip(shape, strides, strict=True))
    assert 0 in shape or (min([offset, *strides]) >= 0 and last < array.size), "a view that reaches outside"
    steps = [step * array.itemsize for step in strides]
    return np.lib.stride_tricks.as_strided(array.reshape(-1)[offset:], shape, steps)


if __name__ == "__main__":
    for path, leaf in read(Path(sys.argv[1]), sys.argv[2]).items():
        print(path, f"{leaf.dtype}{list(leaf.shape)}" if isinstance(leaf, np.ndarray) else repr(leaf)[:80])
