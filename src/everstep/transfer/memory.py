"""Staging memory: allocated once, touched once, kept."""

from __future__ import annotations

import ctypes
import mmap
import threading
from collections.abc import Callable

from everstep.transfer.workers import default_workers

__all__ = ["Arena"]

_HUGEPAGE = 14  # MADV_HUGEPAGE; the numbers are Linux's, Python 3.11 does not name the other two
_WIPEONFORK = 18
_POPULATE_WRITE = 23
_STEP = 4 * 2**20
_ALIGN = 2 * 2**20

_libc = ctypes.CDLL(None, use_errno=True)  # called through ctypes, madvise lets other threads run
_libc.madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
_libc.madvise.restype = ctypes.c_int


class Arena:
    """One stretch of anonymous memory that saves are staged in, one after the other.

    A first write to fresh memory costs ten times a copy into touched memory, and far more where a virtual machine
    must ask its host for it. So `prepare` touches it ahead of time in background threads, in huge pages where
    the system has them, and it is never given back before `close`.

    A forked child (a data-loader worker) gets no copy of it and no copy-on-write of it: there it reads as
    zeros, and the parent's pages stay the parent's (``MADV_WIPEONFORK``). ``pin`` is called with the memory
    whenever it was allocated anew, to register it with a device, and what it returns undoes that before
    the memory goes away; None says that there was nothing to do.
    """

    def __init__(
        self,
        *,
        threads: int | None = None,
        pin: Callable[[memoryview], Callable[[], None] | None] | None = None,
    ) -> None:
        self._threads = threads or max(1, default_workers() // 2)
        self._pin = pin
        self._unpin: Callable[[], None] | None = None
        self._lock = threading.Lock()
        self._map: mmap.mmap | None = None
        self._view = memoryview(b"")
        self._toucher: _Toucher | None = None
        self._leased = False

    @property
    def size(self) -> int:
        """Bytes allocated."""
        return self._view.nbytes

    def prepare(self, nbytes: int) -> None:
        """See to it that ``nbytes`` are there, soon: returns at once, and background threads touch them.

        Does nothing when they are there already, or while a save has the memory.
        """
        with self._lock:
            if not self._leased and nbytes > self.size:
                self._grow(nbytes)

    def take(self, nbytes: int) -> memoryview:
        """The first ``nbytes``, page-aligned, writable, of undefined content, until `release`.

        What the background has not touched yet is left to the caller's writes: waiting for it would take
        longer. Raises RuntimeError while it is taken.
        """
        with self._lock:
            if self._leased:
                raise RuntimeError("the staging memory is in use: one save at a time, and release() after it")
            if nbytes > self.size:
                self._grow(nbytes, touch=False)
            elif self._toucher is not None:
                self._toucher.stop()
                self._toucher = None
            self._leased = True
            return self._view[:nbytes]

    def release(self) -> None:
        """Say that nobody uses what `take` gave any more; again is no error."""
        with self._lock:
            self._leased = False

    def wait(self) -> None:
        """Wait until the background has touched what `prepare` asked for."""
        toucher = self._toucher
        if toucher is not None:
            toucher.wait()

    def close(self) -> None:
        """Give the memory back as soon as no view of it is left."""
        with self._lock:
            self._drop()

    def _drop(self) -> None:
        if self._toucher is not None:
            self._toucher.stop()
            self._toucher = None
        if self._unpin is not None:
            self._unpin()
            self._unpin = None
        self._view = memoryview(b"")
        self._map = None

    def _grow(self, nbytes: int, *, touch: bool = True) -> None:
        self._drop()  # first, so that the old and the new are not there together
        size = -(-nbytes // _ALIGN) * _ALIGN
        self._map = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        self._view = memoryview(self._map)
        address = ctypes.addressof(ctypes.c_ubyte.from_buffer(self._map))
        _advise_if_known(address, size, _HUGEPAGE)
        if not _advise_if_known(address, size, _WIPEONFORK):
            self._map.madvise(mmap.MADV_DONTFORK)
        try:
            self._unpin = self._pin(self._view) if self._pin is not None else None
        except BaseException:
            self._drop()  # else the next save would use it as if it were pinned
            raise
        if self._unpin is None and touch:  # pinning touches every page itself
            self._toucher = _Toucher(self._view, self._threads)


def _advise_if_known(address: int, size: int, advice: int) -> bool:
    """Whether the system took the advice; an older one that does not know it says no."""
    return int(_libc.madvise(address, size, advice)) == 0


class _Toucher:
    """Threads that make each page of a view present, in small steps, from the front on."""

    def __init__(self, view: memoryview, threads: int) -> None:
        self._view = view[:]  # its own, released when it stops
        self._steps = iter(range(0, view.nbytes, _STEP))
        self._lock = threading.Lock()
        self._stopped = False
        self._threads = [
            threading.Thread(target=self._run, name="everstep-touch", daemon=True) for _ in range(threads)
        ]
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Stop and wait for the steps under way."""
        with self._lock:
            self._stopped = True
        self.wait()
        self._view.release()

    def wait(self) -> None:
        """Wait until all is touched, or it was stopped."""
        for thread in self._threads:
            thread.join()

    def _run(self) -> None:
        address = ctypes.addressof(ctypes.c_ubyte.from_buffer(self._view))
        while True:
            with self._lock:
                start = None if self._stopped else next(self._steps, None)
            if start is None:
                return
            length = min(_STEP, self._view.nbytes - start)
            if not _advise_if_known(address + start, length, _POPULATE_WRITE):
                ctypes.memset(address + start, 0, length)
