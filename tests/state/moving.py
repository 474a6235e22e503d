"""A store and a transfer of three lines: bytes by path and box, entries through JSON and the format's checks."""

import msgspec

from everstep.format.check_entries import check_entries
from everstep.format.entries import Entry
from everstep.format.faults import Faults
from everstep.state import assemble, flatten, match


def saved(state, *, rank=0):
    """The entries, as a reader gets them, and the bytes by path and box; both ways to the bytes agree."""
    flat = flatten(state, rank=rank)
    text = msgspec.json.encode(flat.entries)
    entries = msgspec.json.decode(text, type=list[Entry])
    assert entries == list(flat.entries)
    check_entries(entries, Faults("entries"))
    kept = {}
    for piece in flat.pieces:
        into = bytearray(piece.nbytes)
        piece.source.copy_to(memoryview(into))
        view = piece.source.view()
        assert view is None or bytes(view) == into, piece.path
        assert (piece.path, piece.box) not in kept
        kept[piece.path, piece.box] = bytes(into)
    flat.synchronize()
    return entries, kept


def fill(restoration, kept, *, by_copy=False):
    """Bring the bytes where they are wanted, and finish; ``by_copy`` uses the other way of each target."""
    for wanted in restoration.wanted:
        body = kept[wanted.path, wanted.box]
        assert len(body) == wanted.nbytes, wanted.path
        view = None if by_copy else wanted.target.view()
        if view is None:
            wanted.target.copy_from(memoryview(bytearray(body)))
        else:
            view[:] = body
    return restoration.finish()


def restored(source, into, *, by_copy=False, rank=0, **how):
    """Save one state and restore it into another; gives the coverage."""
    entries, kept = saved(source, rank=rank)
    restoration = match(into, entries, rank=rank, **how)
    fill(restoration, kept, by_copy=by_copy)
    return restoration.coverage


def loaded(source, *, by_copy=False):
    """Save a state and make it anew without a template."""
    entries, kept = saved(source)
    return fill(assemble(entries), kept, by_copy=by_copy)
