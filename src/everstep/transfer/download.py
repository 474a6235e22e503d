"""Planned reads from the store to where they belong, in parallel, verified, within a bound of memory."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from everstep.events import Listener, Transferred, silent
from everstep.plan.requests import ChunkRead, Read
from everstep.state.flat import Wanted
from everstep.store.protocol import Store
from everstep.transfer.budget import Budget
from everstep.transfer.fetch import Fetch
from everstep.transfer.placing import place, straight
from everstep.transfer.workers import run_all

__all__ = ["download"]

_STRAIGHT = 256 * 2**10


@dataclass(frozen=True, slots=True, kw_only=True)
class _Request:
    """One request: either one chunk (perhaps of several shards) straight to its place, or some through scratch.

    ``groups`` are the reads of each chunk in it, by offset.
    """

    key: str
    offset: int
    length: int
    groups: tuple[tuple[ChunkRead, ...], ...]
    straight: bool


def download(
    store: Store,
    reads: Sequence[Read],
    wanted: Sequence[Wanted],
    *,
    run: str,
    step: int,
    budget_bytes: int = 256 * 2**20,
    workers: int = 4,
    listener: Listener = silent,
    fused: bool | None = None,
) -> None:
    """Do the reads of `plan_load` and fill the targets of ``wanted``, the list that was planned for.

    Chunks of 256 KiB and more whose bytes lie together in a target are read straight into it; others come
    through scratch memory that is reused. Each chunk is verified before anything is done with it, those
    read straight before the box counts as filled: after an error the targets' content is undefined. Memory
    beside the targets: ``budget_bytes``, scratch and boxes without a view together; one box
    or chunk larger than that is taken alone.

    ``fused`` says that small requests are cheap; by default so on local disks and in memory. ``run`` and
    ``step`` are named in errors. Raises `CorruptChunk`, `MissingObject` naming the leaves, `ShortRead`
    after three tries, and what the store raises; the first error stops the rest.
    """
    if fused is None:
        fused = store.url.startswith(("file:", "memory:"))
    leaves: dict[str, dict[str, None]] = {}
    for read in reads:
        leaves.setdefault(read.key, {}).update((chunk.path, None) for chunk in read.chunks)
    fetch = Fetch(
        store=store,
        run=run,
        step=step,
        leaves={key: tuple(paths) for key, paths in leaves.items()},
        fused=fused,
    )
    requests = [request for read in reads for request in _requests(read, wanted)]
    work = _Download(fetch, requests, wanted, Budget(budget_bytes), listener)
    run_all(requests, work.request, workers=min(workers, len(requests)) or 1, name="everstep-download")


def _requests(read: Read, wanted: Sequence[Wanted]) -> Iterator[_Request]:
    """A read in the requests that it is worth: large chunks on their own, small neighbours together."""
    small: list[tuple[ChunkRead, ...]] = []

    def together() -> Iterator[_Request]:
        if small:
            start = small[0][0].chunk.offset
            end = max(group[0].chunk.offset + group[0].chunk.length for group in small)
            yield _Request(
                key=read.key, offset=start, length=end - start, groups=tuple(small), straight=False
            )
            small.clear()

    for _, found in groupby(read.chunks, key=lambda chunk: (chunk.chunk.offset, chunk.chunk.length)):
        group = tuple(found)
        first = group[0]
        box = wanted[first.wanted[0]]
        if first.chunk.length >= _STRAIGHT and straight(first, box.box, box.nbytes) is not None:
            yield from together()
            offset, length = first.chunk.offset, first.chunk.length
            yield _Request(key=read.key, offset=offset, length=length, groups=(group,), straight=True)
        else:
            small.append(group)
    yield from together()


class _Slot:
    """The bytes of one wanted box while they come in."""

    def __init__(self, wanted: Wanted) -> None:
        self.wanted = wanted
        self.left = 0
        view = wanted.target.view()
        self.buffered = view is None
        self._memory = view if view is None or (view.format == "B" and view.ndim == 1) else view.cast("B")
        self._lock = threading.Lock()
        self._asked = False

    def ask(self) -> int:
        """The bytes of memory that this box still needs, once."""
        with self._lock:
            asked, self._asked = self._asked, True
        return self.wanted.nbytes if self.buffered and not asked else 0

    def memory(self) -> memoryview:
        """Where its bytes go."""
        with self._lock:
            if self._memory is None:
                self._memory = memoryview(bytearray(self.wanted.nbytes))
            return self._memory

    def arrived(self) -> int:
        """One more chunk is in; the bytes of memory given up, which is after the last one."""
        with self._lock:
            self.left -= 1
            if self.left or not self.buffered:
                return 0
        assert self._memory is not None
        self.wanted.target.copy_from(self._memory)
        self._memory = None
        return self.wanted.nbytes


class _Download:
    """What the workers of one download share."""

    def __init__(
        self,
        fetch: Fetch,
        requests: Sequence[_Request],
        wanted: Sequence[Wanted],
        budget: Budget,
        listener: Listener,
    ) -> None:
        self._fetch = fetch
        self._budget = budget
        self._listener = listener
        self._slots: dict[int, _Slot] = {}
        self._total = 0
        for request in requests:
            for group in request.groups:
                self._total += group[0].chunk.length
                for position in (position for read in group for position in read.wanted):
                    slot = self._slots.get(position)
                    if slot is None:
                        slot = self._slots[position] = _Slot(wanted[position])
                    slot.left += 1
        self._done = 0
        self._lock = threading.Lock()
        self._scratch: list[memoryview] = []

    def request(self, request: _Request) -> None:
        """Fetch, verify, place."""
        slots = {p: self._slots[p] for group in request.groups for read in group for p in read.wanted}
        buffers = sum(slot.ask() for slot in slots.values())
        self._budget.begin(buffers + request.length)
        try:
            if request.straight:
                self._straight(request)
            else:
                self._through_scratch(request)
            freed = sum(
                self._slots[position].arrived()
                for group in request.groups
                for read in group
                for position in read.wanted
            )
            self._budget.give_back(freed)
        finally:
            self._budget.give_back(request.length)
            self._budget.end()
        with self._lock:
            self._done += sum(group[0].chunk.length for group in request.groups)
            self._listener(Transferred(what="download", done=self._done, total=self._total))

    def _straight(self, request: _Request) -> None:
        (group,) = request.groups
        first = group[0]
        slot = self._slots[first.wanted[0]]
        start = straight(first, slot.wanted.box, slot.wanted.nbytes)
        assert start is not None
        body = slot.memory()[start : start + request.length]
        self._fetch.chunk(request.key, first, body)
        self._place(group, body, skip=first.wanted[0])

    def _through_scratch(self, request: _Request) -> None:
        held = self._scratch.pop() if self._scratch else memoryview(b"")
        if held.nbytes < request.length:
            held = memoryview(bytearray(request.length))
        scratch = held[: request.length]
        chunks = [group[0] for group in request.groups]
        self._fetch.range(request.key, request.offset, scratch, chunks)
        for group in request.groups:
            at = group[0].chunk.offset - request.offset
            body = scratch[at : at + group[0].chunk.length]
            self._fetch.verify(request.key, group[0], body)
            self._place(group, body)
        self._scratch.append(held)

    def _place(self, group: Sequence[ChunkRead], body: memoryview, skip: int | None = None) -> None:
        for number, read in enumerate(group):
            for position in read.wanted:
                if number == 0 and position == skip:
                    continue
                slot = self._slots[position]
                place(read, body, slot.wanted.box, slot.memory())
