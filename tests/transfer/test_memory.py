"""Staging memory: allocated once, touched once, kept, and nothing to forked children."""

import ctypes
import mmap
import os
import resource

import numpy as np
import pytest

from everstep.transfer import memory
from everstep.transfer.memory import Arena

MIB = 2**20


def address(view):
    """Where a view begins."""
    return ctypes.addressof(ctypes.c_ubyte.from_buffer(view))


def resident(view):
    """How many pages of a view are in memory."""
    pages = -(-view.nbytes // mmap.PAGESIZE)
    found = (ctypes.c_ubyte * pages)()
    libc = ctypes.CDLL(None, use_errno=True)
    result = libc.mincore(ctypes.c_void_p(address(view)), ctypes.c_size_t(view.nbytes), found)
    assert result == 0, os.strerror(ctypes.get_errno())
    return sum(page & 1 for page in found)


def in_a_child(work):
    """The exit status of a forked child that does ``work`` and nothing else."""
    child = os.fork()
    if not child:
        try:
            os._exit(work())
        finally:
            os._exit(99)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def test_memory_begins_at_a_page_and_has_the_size_asked_for():
    """Direct writes to disks need the first, packs the second."""
    arena = Arena()
    for nbytes in (1, 4096, 5 * MIB + 3):
        view = arena.take(nbytes)
        assert view.nbytes == nbytes
        assert address(view) % 4096 == 0
        assert not view.readonly
        view.release()
        arena.release()


def test_prepared_memory_is_touched_in_the_background():
    """After `wait` every page is there, though nobody wrote one; what was not prepared is not."""
    arena = Arena(threads=2)
    arena.prepare(21 * MIB + 5)
    arena.wait()
    view = arena.take(21 * MIB + 5)
    assert resident(view) == -(-view.nbytes // mmap.PAGESIZE)
    cold = Arena().take(21 * MIB)
    assert resident(cold) == 0


def test_a_system_without_the_advice_is_touched_by_writing(monkeypatch):
    """An older kernel knows neither wiping on fork nor populating: pages are there all the same."""
    real = memory._advise_if_known

    def old(at, size, advice):
        return advice not in {memory._POPULATE_WRITE, memory._WIPEONFORK} and real(at, size, advice)

    monkeypatch.setattr(memory, "_advise_if_known", old)
    arena = Arena(threads=2)
    arena.prepare(9 * MIB)
    arena.wait()
    assert resident(arena.take(9 * MIB)) == 9 * MIB // mmap.PAGESIZE


def test_memory_is_reused_for_every_save_that_fits():
    """The same address, still touched; it never shrinks."""
    arena = Arena()
    arena.prepare(8 * MIB)
    arena.wait()
    seen = set()
    for nbytes in (8 * MIB, 100, 3 * MIB, 8 * MIB):
        view = arena.take(nbytes)
        seen.add(address(view))
        view[:] = bytes([len(seen)]) * nbytes
        arena.release()
        arena.prepare(nbytes)
    assert len(seen) == 1
    assert arena.size == 8 * MIB
    assert resident(arena.take(8 * MIB)) == 8 * MIB // mmap.PAGESIZE


def test_memory_that_is_in_use_is_not_given_twice():
    """Two saves in it at once would mix their bytes; it says so, and the first is unharmed."""
    arena = Arena()
    view = arena.take(100)
    view[:] = b"x" * 100
    with pytest.raises(RuntimeError, match="one save at a time"):
        arena.take(10 * MIB)
    assert bytes(view) == b"x" * 100
    arena.release()
    arena.release()
    arena.take(10)


def test_preparing_does_nothing_while_a_save_has_the_memory():
    """It is neither moved nor touched."""
    arena = Arena()
    view = arena.take(4096)
    view[:] = b"y" * 4096
    size = arena.size
    arena.prepare(50 * MIB)
    assert arena.size == size
    assert bytes(view) == b"y" * 4096


def test_background_touches_never_change_what_a_save_wrote(monkeypatch):
    """A save may begin while the background is at it, even where touching means writing."""
    monkeypatch.setattr(memory, "_advise_if_known", lambda _at, _size, _advice: False)
    monkeypatch.setattr(memory, "_STEP", 64 * 2**10)
    for _ in range(10):
        arena = Arena(threads=3)
        arena.prepare(16 * MIB)
        view = np.frombuffer(arena.take(16 * MIB), np.uint8)
        view[:] = 7
        arena.wait()
        assert (view == 7).all()


def test_it_grows_when_a_save_needs_more():
    """By `prepare`, before the background has ended too, and by `take`."""
    arena = Arena()
    arena.prepare(2 * MIB)
    arena.prepare(30 * MIB)
    assert arena.size >= 30 * MIB
    with arena.take(50 * MIB) as view:
        view[-1] = 1
    assert arena.size >= 50 * MIB


def test_closed_memory_is_given_back_once_no_view_is_left():
    """A view that is still held stays readable; a closed arena begins anew."""
    arena = Arena()
    view = arena.take(MIB)
    view[:4] = b"kept"
    arena.close()
    assert arena.size == 0
    assert bytes(view[:4]) == b"kept"
    arena.release()
    assert arena.take(MIB).nbytes == MIB


def test_memory_is_pinned_when_allocated_and_unpinned_before_it_goes():
    """Once for each allocation, with all of it; not again for a save that fits."""
    told = []

    def pin(view):
        at, size = address(view), view.nbytes
        told.append(("pin", at, size))
        return lambda: told.append(("unpin", at, size))

    arena = Arena(pin=pin)
    arena.prepare(2 * MIB)
    arena.take(MIB)
    arena.release()
    first = told[0]
    assert told == [("pin", first[1], 2 * MIB)]
    arena.take(5 * MIB)
    arena.close()
    arena.close()
    second = told[2]
    assert told[1] == ("unpin", *first[1:])
    assert second[0] == "pin"
    assert second[2] >= 5 * MIB
    assert told[3:] == [("unpin", *second[1:])]


def test_a_hook_that_pins_nothing_leaves_the_touching_to_the_background():
    """None from the hook: there is no device to register with."""
    arena = Arena(pin=lambda _view: None)
    arena.prepare(4 * MIB)
    arena.wait()
    assert resident(arena.take(4 * MIB)) == 4 * MIB // mmap.PAGESIZE


def test_a_forked_child_reads_zeros_and_its_writes_stay_its_own():
    """A data-loader worker can neither see nor harm a save."""
    arena = Arena()
    view = arena.take(4 * MIB)
    view[:] = b"\7" * view.nbytes

    def work():
        seen = view[0] | view[-1]
        view[:] = b"\1" * view.nbytes
        return seen

    assert in_a_child(work) == 0
    assert bytes(view) == b"\7" * view.nbytes


def test_a_fork_costs_the_parent_no_copy_of_the_memory():
    """Writing on while a child lives takes no page fault for each page."""
    arena = Arena()
    view = np.frombuffer(arena.take(32 * MIB), np.uint8)
    view[:] = 1
    hold, let_go = os.pipe()
    child = os.fork()
    if not child:
        os.close(let_go)
        os.read(hold, 1)
        os._exit(0)
    try:
        before = resource.getrusage(resource.RUSAGE_THREAD).ru_minflt
        view[:: mmap.PAGESIZE] = 2
        faults = resource.getrusage(resource.RUSAGE_THREAD).ru_minflt - before
    finally:
        os.close(let_go)
        os.close(hold)
        os.waitpid(child, 0)
    assert faults < 1000  # 8192 pages


def test_a_fork_while_the_background_touches_harms_neither():
    """The child leaves at once, the parent's memory is complete."""
    arena = Arena(threads=2)
    arena.prepare(32 * MIB)
    assert in_a_child(lambda: 0) == 0
    arena.wait()
    assert resident(arena.take(32 * MIB)) == 32 * MIB // mmap.PAGESIZE


def test_memory_that_could_not_be_pinned_is_not_kept():
    """A pin that raises leaves nothing behind that a later save would take for pinned."""

    def refuse(_memory):
        raise RuntimeError("no pages to lock")

    arena = Arena(pin=refuse)
    for _ in range(2):
        with pytest.raises(RuntimeError, match="no pages"):
            arena.take(4096)
        assert arena.size == 0
