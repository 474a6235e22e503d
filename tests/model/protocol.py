"""The commit protocol as a small machine, and a search through everything that it can do.

Each actor is a list of steps, each step one request to the store. Any actor may stand still for ever at any
step, which is what a crash, a pause and a slow machine look like to the others; time-outs may fire at any
moment. So no clock is assumed. The ranks of one launch are one actor: rank 0 writes the plan and looks at the bases
for all, and what the others do later is what this actor may do later. ``broken`` names rules that are left out, to see that each is needed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import NamedTuple

__all__ = ["ACTORS", "Found", "World", "explore"]

COMMITTED, ABORTED = "committed", "aborted"
OWN_PACK = {"S1": "P1", "S2": "P2", "S3": "P3"}
SAVE_OF = {"old": "S2", "new": "S3", "fork": "S4"}
ACTORS = ("old", "new", "fork", "sweep", "sweep2")


class World(NamedTuple):
    """All that the store holds, what the new attempt resumed from, and where every actor is.

    ``at`` has for each actor its next step, its base (a sweep: its victim), and what it keeps in mind.
    """

    records: frozenset[tuple[str, str]]
    tombs: frozenset[str]
    plans: frozenset[tuple[str, str | None]]
    packs: frozenset[str]
    indexes: frozenset[tuple[str, frozenset[str]]]
    attempts: int
    resumed: frozenset[str] | None
    at: tuple[tuple[str, str | None, object], ...]


class Found(NamedTuple):
    """The outcome of a search: the promise that was broken, if any, the way there, and how many states."""

    wrong: str
    way: tuple[str, ...]
    states: int


def explore(actors: tuple[str, ...], broken: frozenset[str] = frozenset()) -> Found:
    """Visit every state that the actors can reach, breadth first; stop at the first that breaks a promise."""
    first = World(
        records=frozenset({("S1", COMMITTED)}),
        tombs=frozenset(),
        plans=frozenset({("S1", None)}),
        packs=frozenset({"P1"}),
        indexes=frozenset({("S1", frozenset({"P1"}))}),
        attempts=1,
        resumed=None,
        at=tuple(("begin", None, None) for _ in actors),
    )
    came: dict[World, tuple[World, str] | None] = {first: None}
    waiting = deque([first])
    while waiting:
        world = waiting.popleft()
        for i, actor in enumerate(actors):
            steps = _sweep if actor.startswith("sweep") else _save
            for words, after in steps(world, i, actor, broken):
                if after in came:
                    continue
                came[after] = (world, f"{actor}: {words}")
                if wrong := _broken_promise(world, after):
                    return Found(wrong, _way(came, after), len(came))
                waiting.append(after)
    return Found("", (), len(came))


def _way(came: dict[World, tuple[World, str] | None], world: World) -> tuple[str, ...]:
    way: list[str] = []
    while step := came[world]:
        world = step[0]
        way.append(step[1])
    return tuple(reversed(way))


def _broken_promise(before: World, after: World) -> str:
    records, refers = dict(after.records), dict(after.indexes)
    for save, state in records.items():
        if state == COMMITTED and save not in refers:
            return f"{save} is committed without its index"
        if state == COMMITTED and save not in after.tombs and not refers[save] <= after.packs:
            return f"committed {save} lost a pack"
    late = records.get("S2") == COMMITTED and after.resumed is not None and "S2" not in after.resumed
    if late:
        return "the old attempt committed after the new one had resumed"
    if any(records.get(save, state) != state for save, state in before.records):
        return "a decision changed"
    return ""


def _save(world: World, i: int, actor: str, broken: frozenset[str]) -> Iterator[tuple[str, World]]:
    step, base, mind = world.at[i]
    save = SAVE_OF[actor]
    records = dict(world.records)

    def to(next_step: str, next_base: str | None = base, mind: object = None, **changed: object) -> World:
        at = (*world.at[:i], (next_step, next_base, mind), *world.at[i + 1 :])
        return world._replace(at=at, **changed)

    match step:
        case "begin" if actor == "new":
            yield "claims attempt 2", to("list", attempts=2)
        case "begin":
            yield "begins", to("pick")
        case "list":
            older = tuple(name for name, _ in world.plans if name == "S2" and name not in records)
            yield f"lists undecided saves {older}", to("look", mind=() if "no settling" in broken else older)
        case "look" if mind:
            complete = "S2" in dict(world.indexes) or "finish without indexes" in broken
            yield "looks whether S2 is complete", to("settle", mind=COMMITTED if complete else ABORTED)
        case "look":
            stand = frozenset(name for name, state in records.items() if state == COMMITTED)
            yield "resumes", to("pick", resumed=stand)
        case "settle":
            decided = world.records if "S2" in records else world.records | {("S2", str(mind))}
            yield f"decides S2 {mind}", to("look", mind=(), records=decided)
        case "pick":
            bases = [
                name for name, state in records.items() if state == COMMITTED and name not in world.tombs
            ]
            early = (
                "check"
                if "look before pin" in broken
                else "fence"
                if "fence before plan" in broken
                else "plan"
            )
            for name in bases if actor == "fork" else [None, *bases]:
                yield f"picks base {name}", to(early, name)
        case "plan":
            pinned = None if actor == "fork" and "fork without pin" in broken else base
            after = "check" if "fence before plan" in broken or actor == "fork" else "fence"
            if "look before pin" in broken:
                after = "pack" if actor == "fork" else "fence"
            yield f"writes its plan, pinning {pinned}", to(after, plans=world.plans | {(save, pinned)})
        case "fence" if actor == "old" and world.attempts > 1:
            yield "is fenced", to("dead", None)
        case "fence":
            after = (
                "pack"
                if "look before pin" in broken
                else "plan"
                if "fence before plan" in broken
                else "check"
            )
            yield "is not fenced", to(after)
        case "check":
            after = "plan" if "look before pin" in broken else "pack"
            if (
                base not in world.tombs
                or "no look" in broken
                or (actor, "fork without look" in broken) == ("fork", True)
            ):
                yield f"finds {base} standing", to(after)
            else:
                yield f"finds {base} pruned", to("dead" if actor == "fork" else after, None)
        case "pack" if actor == "fork":
            yield "writes no pack", to("index")
        case "pack":
            yield "writes its pack", to("index", packs=world.packs | {OWN_PACK[save]})
        case "index":
            refers = dict(world.indexes).get(base or "", frozenset())
            if "dedupe by presence" in broken and not base:
                refers = world.packs & {"P1"}
            own = frozenset() if actor == "fork" else {OWN_PACK[save]}
            yield "writes its index", to("commit", indexes=world.indexes | {(save, refers | own)})
        case "commit" if "plain put" in broken:
            others = frozenset(record for record in world.records if record[0] != save)
            yield "commits, overwriting", to("dead", None, records=others | {(save, COMMITTED)})
        case "commit" if save in records:
            yield f"finds itself {records[save]}", to("dead", None)
        case "commit":
            yield "commits", to("dead", None, records=world.records | {(save, COMMITTED)})


def _sweep(world: World, i: int, actor: str, broken: frozenset[str]) -> Iterator[tuple[str, World]]:
    step, victim, mind = world.at[i]
    records, refers = dict(world.records), dict(world.indexes)
    plans_first = "plans before dead set" in broken

    def to(next_step: str, mind: object = None, **changed: object) -> World:
        at = (*world.at[:i], (next_step, changed.pop("victim", victim), mind), *world.at[i + 1 :])
        return world._replace(at=at, **changed)

    def dead() -> frozenset[str]:
        return frozenset(name for name, state in records.items() if state == ABORTED or name in world.tombs)

    match step:
        case "begin":
            yield "prunes nothing", to("plans" if plans_first else "freeze")
            for name, state in records.items():
                if state == COMMITTED and name not in world.tombs:
                    yield (
                        f"chooses {name}",
                        to("plans" if "plans before tomb" in broken else "tomb", victim=name),
                    )
        case "tomb":
            after = "records" if "plans before tomb" in broken else "plans" if plans_first else "freeze"
            if "plans before tomb" in broken:
                assert isinstance(mind, tuple)
                mind = (dead() | {victim}, mind[1])
            yield f"tombs {victim}", to(after, mind, tombs=world.tombs | {victim})
        case "freeze":
            yield f"freezes the dead {sorted(dead())}", to("plans", dead())
        case "plans":
            seen = world.plans
            if "sweep one run" in broken:
                seen = frozenset(plan for plan in seen if plan[0] != "S4")
            after = "tomb" if "plans before tomb" in broken and victim else "records"
            yield "lists plans", to(after, (mind, seen))
            for name, _ in world.plans:
                if name in records:
                    continue
                if "forget old plans" in broken:
                    rest = frozenset(plan for plan in seen if plan[0] != name)
                    yield f"forgets the plan of {name}", to("records", (mind, rest))
                else:
                    yield f"aborts {name}", to("plans", mind, records=world.records | {(name, ABORTED)})
        case "records":
            assert isinstance(mind, tuple)
            frozen, plans = mind
            gone = dead() if plans_first or frozen is None else frozen
            live = set()
            for name, state in records.items():
                if state == COMMITTED and name not in gone:
                    live |= refers[name]
            for name, base in plans:
                if name not in records and base:
                    live |= refers[base]
            doomed = {OWN_PACK[name] for name in gone if name in OWN_PACK} & world.packs - live
            yield f"will delete {sorted(doomed)}", to("delete", tuple(sorted(doomed)))
        case "delete" if mind:
            assert isinstance(mind, tuple)
            yield f"deletes {mind[0]}", to("delete", mind[1:], packs=world.packs - {mind[0]})
        case "delete" if "delete records" in broken:
            kept = frozenset(record for record in world.records if record[1] != ABORTED)
            yield "deletes the records of aborted saves", to("end", records=kept)
