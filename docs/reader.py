"""Read the newest checkpoint of a run from a local store, by docs/format.md alone: python reader.py STORE RUN."""

import base64
import json
import struct
import sys
from collections.abc import Callable
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


def newest(store: Path, run: str) -> tuple[Any, Path]:
    """The manifest of the newest checkpoint and its folder; sorted names begin with the newest."""
    head = record(store / "everstep.json")
    assert (head["format"], head["digest"]) == (1, "blake3-256"), "a newer format"
    for file in sorted((store / "runs" / run / "commits").glob("*.json")):
        commit = record(file)
        if commit["state"] == "committed" and not (store / "runs" / run / "tombs" / commit["save"]).exists():
            folder = store / "runs" / run / "saves" / commit["save"]
            return described(folder / f"manifest.{commit['manifest']}.json", commit["manifest"]), folder
    raise LookupError(f"run {run} has no checkpoint")


def read(store: Path, run: str) -> dict[str, Any]:
    """Every leaf by its path: plain values, and arrays (of bare bytes where NumPy lacks the element type)."""
    manifest, folder = newest(store, run)
    entries = {entry["path"]: entry for entry in manifest["entries"]}
    leaves = {path: value(entry["value"]) for path, entry in entries.items() if entry["kind"] == "value"}
    stored = {}
    for rank, digest, _size in manifest["indexes"]:
        index = described(folder / f"rank-{rank:07d}.{digest}.json", digest)
        for shard in index["shards"]:
            body = bytearray()
            for chunk, pack, offset, length in shard["chunks"]:
                with (store / index["packs"][pack]).open("rb") as opened:
                    opened.seek(offset)
                    body += verified(opened.read(length), chunk, f"{shard['path']} in {opened.name}")
            entry, sizes = entries[shard["path"]], shard["sizes"]
            try:
                dtype = np.dtype(entry["dtype"]).newbyteorder("<")
            except TypeError:
                dtype = f"V{len(body) // max(1, int(np.prod(sizes)))}"
            whole = stored.setdefault(entry["path"], np.zeros(entry["shape"], dtype))
            box = tuple(slice(at, at + n) for at, n in zip(shard["offsets"], sizes, strict=True))
            whole[box] = np.frombuffer(body, dtype).reshape(sizes)
    for path, entry in entries.items():
        if entry["kind"] in ("tensor", "alias"):
            of = entries[entry.get("of", path)]
            view = entry if "of" in entry and "shape" in entry else of.get("extra", {}).get("view")
            leaves[path] = seen(stored[of["path"]], view) if view else stored[of["path"]]
    return leaves


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
