"""Several ranks in one process: each rank's state written down, entries united, bytes kept by path and box."""

import msgspec

from everstep.format.check_entries import check_entries
from everstep.format.entries import Container, Entry
from everstep.format.faults import Faults
from everstep.format.paths import parent
from everstep.state import assemble, flatten, match
from tests.state.moving import fill


def saved_by(*states):
    """All ranks' entries as one list, and their bytes; ranks that hold one box hold the same bytes."""
    flats = [flatten(state, rank=rank, world=len(states)) for rank, state in enumerate(states)]
    kept = {}
    for flat in flats:
        for piece in flat.pieces:
            into = bytearray(piece.nbytes)
            piece.source.copy_to(memoryview(into))
            assert kept.setdefault((piece.path, piece.box), bytes(into)) == into, piece.path
        flat.synchronize()
    entries = united([flat.entries for flat in flats])
    check_entries(entries, Faults("entries"))
    return msgspec.json.decode(msgspec.json.encode(entries), type=list[Entry]), kept


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
