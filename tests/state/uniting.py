"""Several ranks in one process: each rank's state written down, entries united, bytes kept by path and box."""

import msgspec
import numpy as np

from everstep.format.check_entries import check_entries
from everstep.format.entries import Container, Entry
from everstep.format.faults import Faults
from everstep.format.paths import parent
from everstep.state import assemble, flatten, match
from tests.state.moving import fill


def saved_by(*states):
    """All ranks' entries as one list, and their bytes; ranks that hold one box hold the same bytes."""
    return together([written(state, rank, len(states)) for rank, state in enumerate(states)])


def written(state, rank, world):
    """One rank's entries, and the bytes by path and box."""
    flat = flatten(state, rank=rank, world=world)
    kept = {}
    for piece in flat.pieces:
        into = bytearray(piece.nbytes)
        piece.source.copy_to(memoryview(into))
        kept[piece.path, piece.box] = bytes(into)
    flat.synchronize()
    return flat.entries, kept


def together(ranks):
    """The entries of ranks as one list, and their bytes."""
    kept = {}
    for _, own in ranks:
        for key, body in own.items():
            assert kept.setdefault(key, body) == body, key
    entries = united([entries for entries, _ in ranks])
    check_entries(entries, Faults("entries"))
    return msgspec.json.decode(msgspec.json.encode(entries), type=list[Entry]), kept


def cut(restoration, kept):
    """Bring boxes that are cut otherwise than the saved ones, and finish."""
    for wanted in restoration.wanted:
        item = wanted.nbytes // max(wanted.box.elements, 1)
        body = np.full((*wanted.box.sizes, item), 255, np.uint8)
        for (path, box), part in kept.items():
            if path == wanted.path and box.elements:
                _overlay(body, wanted.box, box, np.frombuffer(part, np.uint8).reshape((*box.sizes, item)))
        wanted.target.copy_from(memoryview(bytearray(body.tobytes())))
    return restoration.finish()


def _overlay(body, wanted, box, part):
    low = [max(a, b) for a, b in zip(wanted.offsets, box.offsets, strict=True)]
    high = [
        min(a + m, b + n)
        for a, m, b, n in zip(wanted.offsets, wanted.sizes, box.offsets, box.sizes, strict=True)
    ]
    if any(stop <= start for start, stop in zip(low, high, strict=True)):
        return
    here, there = (
        tuple(slice(start - o, stop - o) for start, stop, o in zip(low, high, offsets, strict=True))
        for offsets in (wanted.offsets, box.offsets)
    )
    body[here] = part[there]


def united(lists):
    """Each path once, in pre-order; keys below a stage, and of parts by rank, are those of all."""
    by_path, children = {}, {}
    for entries in lists:
        for entry in entries:
            standing = by_path.get(entry.path)
            if standing is None:
                by_path[entry.path] = entry
                if entry.path:
                    children.setdefault(parent(entry.path), []).append(entry.path)
            elif standing != entry:
                assert isinstance(entry, Container), (standing, entry)
                assert standing.keys is not None, standing
                assert standing.type == "per_rank" or _staged(by_path, entry.path), entry.path
                keys = [*standing.keys, *(key for key in entry.keys if key not in standing.keys)]
                by_path[entry.path] = msgspec.structs.replace(standing, keys=keys)

    def below(path):
        yield by_path[path]
        for child in children.get(path, ()):
            yield from below(child)

    return list(below(""))


def _staged(by_path, path):
    while path:
        if getattr(by_path[path], "type", "") == "stage":
            return True
        path = parent(path)
    return False


def restored_by(sources, lives, **how):
    """Save some ranks' states and restore them into others'; gives the coverages."""
    entries, kept = saved_by(*sources)
    found = []
    for rank, live in enumerate(lives):
        restoration = match(live, entries, rank=rank, world=len(lives), **how)
        fill(restoration, kept)
        found.append(restoration.coverage)
    return found


def loaded_from(*states):
    """Save some ranks' states and make them anew without a template."""
    entries, kept = saved_by(*states)
    return fill(assemble(entries), kept)
