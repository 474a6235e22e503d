"""States made of NumPy arrays, and the way there and back without a repository."""

from types import SimpleNamespace

import numpy as np

from everstep.format.box import Box
from everstep.format.entries import Tensor
from everstep.format.index import Index, Meta
from everstep.plan import plan_load, plan_save
from everstep.state.flat import Flat, Piece, Wanted
from everstep.transfer.download import download
from everstep.transfer.memory import Arena
from everstep.transfer.stage import stage
from everstep.transfer.upload import upload


class ArraySource:
    """The bytes of an array; without a view when asked, as from a device."""

    def __init__(self, array, *, hidden=False):
        self.array, self.hidden, self.copies = array, hidden, 0

    def view(self):
        if self.hidden:
            return None
        return memoryview(np.ascontiguousarray(self.array).reshape(-1).view(np.uint8))

    def copy_to(self, into):
        self.copies += 1
        into[:] = memoryview(np.ascontiguousarray(self.array).reshape(-1).view(np.uint8))


class ArrayTarget:
    """Memory to fill, or with ``hidden`` an array that takes filled memory."""

    def __init__(self, nbytes, *, hidden=False):
        self.bytes, self.hidden, self.taken = np.full(nbytes, 0xEE, np.uint8), hidden, 0

    def view(self):
        return None if self.hidden else memoryview(self.bytes)

    def copy_from(self, filled):
        self.taken += 1
        self.bytes[:] = np.frombuffer(filled, np.uint8)


def flat_of(arrays, *, hidden=(), boxes=None):
    """A Flat of named arrays; ``boxes`` cuts a tensor into pieces of these boxes."""
    entries, pieces = [], []
    for path, given in arrays.items():
        array = np.asarray(given)
        entries.append(Tensor(path=path, dtype=str(array.dtype), shape=array.shape, framework="numpy"))
        for box in (boxes or {}).get(path, [Box.whole(array.shape)]):
            part = array[tuple(slice(o, o + n) for o, n in zip(box.offsets, box.sizes, strict=True))]
            source = ArraySource(part, hidden=path in hidden)
            pieces.append(
                Piece(path=path, dtype=str(array.dtype), box=box, nbytes=part.nbytes, source=source)
            )
    return Flat(entries=tuple(entries), pieces=tuple(pieces), synchronize=lambda: None)


def staged_of(flat, arena=None, **options):
    """Staged in an arena of its own."""
    plan = plan_save(flat.pieces, rank=0, world=1, entries=flat.entries)
    return stage(flat, plan, arena or Arena(), **options)


def keys(save="save"):
    """The pack keys of a save."""
    return lambda n: f"packs/{n:02x}/{save}/0-{n}.safetensors"


def save(store, flat, *, name="save", known=None, arena=None, workers=2, stage_options=None, **options):
    """Stage and upload; what was uploaded, and the index of it."""
    staged = staged_of(flat, arena, **(stage_options or {}))
    uploaded = upload(staged, store=store, pack_key=keys(name), known=known or {}, workers=workers, **options)
    index = Index(
        format=1, run="run", save=name, rank=0, world=1, plan="", packs=uploaded.packs,
        entries=flat.entries, shards=uploaded.shards, meta=Meta(), bytes=staged.nbytes,
        stored_bytes=uploaded.stored_bytes,
    )  # fmt: skip
    return SimpleNamespace(uploaded=uploaded, index=index)


def known_of(index):
    """Where the chunks of an index are."""
    return {
        c.digest: (index.packs[c.pack], c.offset, c.length) for shard in index.shards for c in shard.chunks
    }


def wanted_of(flat, *, hidden=(), boxes=None):
    """What restores a Flat: whole tensors, or the given (path, box) list."""
    entries = {entry.path: entry for entry in flat.entries}
    chosen = boxes if boxes is not None else [(p, Box.whole(e.shape)) for p, e in entries.items()]
    wanted = []
    for path, box in chosen:
        nbytes = box.elements * np.dtype(entries[path].dtype).itemsize
        target = ArrayTarget(nbytes, hidden=path in hidden)
        wanted.append(Wanted(path=path, dtype=entries[path].dtype, box=box, nbytes=nbytes, target=target))
    return tuple(wanted)


def restore(store, flat, indexes, *, hidden=(), boxes=None, plan_options=None, **options):
    """Plan and download; the bytes of each wanted box."""
    wanted = wanted_of(flat, hidden=hidden, boxes=boxes)
    reads = plan_load(wanted, indexes, **(plan_options or {}))
    download(store, reads, wanted, run="run", step=7, **options)
    return [w.target.bytes.tobytes() for w in wanted]
