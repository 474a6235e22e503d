"""Where the bytes of a store are: by run, each pack counted where it belongs, and all of them once in the total."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from everstep.errors import IntegrityError
from everstep.format.ids import SaveId
from everstep.repository.checkpoint import Checkpoint
from everstep.repository.keys import save_of_pack
from everstep.repository.repository import Repository
from everstep.repository.runs import find_run, runs
from everstep.retention.chunks import data_bytes, live_bytes, sparse, used_chunks
from everstep.retention.holdings import Holdings, holdings, less, of_dead_saves, pack_sizes
from everstep.retention.marking import PackLists
from everstep.retention.repacking.kin import kin

__all__ = ["Inside", "RunSpace", "Space", "add_up", "space"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSpace:
    """The bytes of one run.

    ``logical`` is the size of all its checkpoints' states. ``stored`` are the packs that they need, each once:
    ``shared`` of these other runs need as well, ``alone`` none does, which pruning the whole run would free.
    ``waiting`` are packs that only pruned checkpoints need, which can be undeleted still; ``under_way`` are of saves
    that are not decided; ``garbage`` is left by saves that were given up, or not swept to the end. ``dead`` are the
    bytes inside ``stored`` that no checkpoint needs, None when nobody looked.
    """

    run: str
    checkpoints: int
    logical: int
    stored: int
    shared: int
    alone: int
    waiting: int
    under_way: int
    garbage: int
    dead: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Space:
    """The runs that were asked for, and the totals.

    ``total`` is what a list of the packs shows: ``stored``, ``waiting``, ``under_way`` and ``garbage`` together, the
    last with ``orphans``, of which no run knows the save. ``shared`` is needed by several runs. ``dead`` and ``sparse``
    are told by a look inside: bytes of live packs that no checkpoint needs, and those of them that a repack frees.
    ``missing`` are packs that checkpoints need and the list does not show.
    """

    runs: tuple[RunSpace, ...]
    packs: int
    total: int
    logical: int
    stored: int
    shared: int
    waiting: int
    under_way: int
    garbage: int
    orphans: int
    missing: tuple[str, ...]
    damage: tuple[IntegrityError, ...]
    dead: int | None = None
    sparse: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Inside:
    """What a look into packs of dead saves found, by pack: its bytes without the header, and those of needed chunks."""

    data: Mapping[str, int]
    live: Mapping[str, int]


def space(
    repo: Repository,
    run: str | None = None,
    *,
    deep: bool = False,
    without: Collection[Checkpoint] = (),
    lists: PackLists | None = None,
) -> Space:
    """Look through the store: one list of its packs, and for each run what `holdings` costs.

    With ``run`` the totals are of that run and of those that it may share packs with. ``deep`` also reads the
    indexes of each checkpoint that needs packs of pruned ones, which of large models are many megabytes, and 8 bytes
    of each such pack. ``without`` are checkpoints that are reckoned as pruned. Raises `RunNotFound`. Damage of single
    checkpoints is noted in the result.
    """
    if run is not None:
        find_run(repo, run)
    names = [record.run for record in runs(repo)] if run is None else kin(repo, [run])
    known = lists or PackLists(repo)
    gone = {(one.run, one.save) for one in without}
    found = [less(holdings(repo, name, known), gone) for name in names]
    sizes = pack_sizes(repo)
    if run is not None:
        sizes = _of(found, sizes)
    inside = _look_inside(repo, found, sizes) if deep else None
    return add_up(found, sizes, inside)


def _of(found: Sequence[Holdings], sizes: Mapping[str, int]) -> dict[str, int]:
    """The packs that these runs need, or that their saves wrote."""
    saves = {save for one in found for save in (*one.alive, *one.dead, *one.undecided)}
    needed = {key for one in found for held in (*one.live, *one.waiting) for key in held.packs}
    return {key: size for key, size in sizes.items() if key in needed or save_of_pack(key) in saves}


def _look_inside(repo: Repository, found: Sequence[Holdings], sizes: Mapping[str, int]) -> Inside:
    held, packs = of_dead_saves(found)
    live = live_bytes(used_chunks(repo, held, packs & sizes.keys()))
    return Inside(data=data_bytes(repo, sizes, live), live=live)


def add_up(found: Sequence[Holdings], sizes: Mapping[str, int], inside: Inside | None = None) -> Space:
    """The sums, from what was read alone."""
    needed = [_needed(run, sizes) for run in found]
    by_runs = Counter(key for packs in needed for key in packs)
    live = frozenset(by_runs)
    waiting = frozenset(key for run in found for one in run.waiting for key in one.packs) - live
    homes = _homes(found)
    rest = sizes.keys() - live - waiting
    under_way = frozenset(key for key in rest if homes.get(_owner(key), (0, False))[1])
    dead = {key: data - inside.live[key] for key, data in inside.data.items()} if inside else {}
    rows: list[RunSpace] = []
    for number, run in enumerate(found):
        own = {key for key in rest if homes.get(_owner(key), (-1, False))[0] == number}
        shared = {key for key in needed[number] if by_runs[key] > 1}
        mine = {key for one in run.waiting for key in one.packs} & waiting
        rows.append(
            RunSpace(
                run=run.run,
                checkpoints=len(run.live),
                logical=sum(one.checkpoint.bytes for one in run.live),
                stored=_sum(needed[number], sizes),
                shared=_sum(shared, sizes),
                alone=_sum(needed[number] - shared, sizes),
                waiting=_sum(mine, sizes),
                under_way=_sum(own & under_way, sizes),
                garbage=_sum(own - under_way, sizes),
                dead=None if inside is None else _sum(needed[number], dead),
            )
        )
    thin = sparse(inside.data, inside.live) if inside else frozenset()
    return Space(
        runs=tuple(rows),
        packs=len(sizes),
        total=sum(sizes.values()),
        logical=sum(row.logical for row in rows),
        stored=_sum(live, sizes),
        shared=_sum((key for key, count in by_runs.items() if count > 1), sizes),
        waiting=_sum(waiting, sizes),
        under_way=_sum(under_way, sizes),
        garbage=_sum(rest - under_way, sizes),
        orphans=_sum((key for key in rest if _owner(key) not in homes), sizes),
        missing=tuple(sorted(live - sizes.keys())),
        damage=tuple(error for run in found for _, error in run.damaged),
        dead=None if inside is None else sum(dead.values()),
        sparse=None if inside is None else _sum(thin, dead),
    )


def _needed(run: Holdings, sizes: Mapping[str, int]) -> frozenset[str]:
    """The packs of its checkpoints; of a damaged one at least those that it wrote."""
    damaged = {save for save, _ in run.damaged}
    own = {key for key in sizes if _owner(key) in damaged} if damaged else set[str]()
    return frozenset(own.union(*(one.packs for one in run.live)))


def _homes(found: Sequence[Holdings]) -> dict[SaveId | None, tuple[int, bool]]:
    """For each save the number of the run that knows it, and whether it is undecided there.

    A save of several runs (copied within the store) is the first one's.
    """
    homes: dict[SaveId | None, tuple[int, bool]] = {}
    for number, run in enumerate(found):
        for save in (*run.alive, *run.dead):
            homes.setdefault(save, (number, False))
    for number, run in enumerate(found):
        for save in run.undecided:
            homes.setdefault(save, (number, True))
    return homes


def _owner(key: str) -> SaveId | None:
    return save_of_pack(key)


def _sum(keys: Iterable[str], sizes: Mapping[str, int]) -> int:
    return sum(sizes.get(key, 0) for key in keys)
