"""What must hold in every state of the store, whoever stands still."""

from __future__ import annotations

from tests.model.freezing import step_of
from tests.model.graves import ABORTED, Broken, graves
from tests.model.search import Objects, alone
from tests.model.sweeps import tidy

__all__ = ["broken_promise", "left"]


def broken_promise(before: Objects, after: Objects) -> str:
    """The promise that this change of the store breaks, or an empty text."""
    for at, value in before.items():
        if at[0] == "commit" and after.get(at) != value:
            return "a decision changed"
    for (kind, run, name), value in after.items():
        if kind == "wrong":
            return name
        standing = kind == "commit" and value != ABORTED and not _tomb(after, run, name)
        if standing and (lost := _lost(after, run, name)):
            return f"committed {name} {lost}"
        if kind == "reading" and (lost := _lost(after, *value)):
            return f"{value[1]} {lost} while it is read"
        if kind == "tagged" and all(lost := [_lost(after, value[0], at) for at in _chain(after, *value)]):
            return f"tagged {value[1]} {lost[-1]}"
    return _late(after) or _policy(after)


def left(objects: Objects, broken: Broken = frozenset()) -> str:
    """What is wrong or left when all stand still for ever and an operator tidies up; an empty text when nothing is."""
    after = alone(tidy(broken), objects)
    if wrong := broken_promise({}, after):
        return f"{wrong} when all is swept"
    used: set[str] = set()
    for (kind, run, name), value in after.items():
        if kind == "commit" and value != ABORTED and not _tomb(after, run, name):
            used |= value
    for kind, run, name in after:
        if kind == "pack" and name not in used:
            return f"pack {name} is left"
        if kind in {"plan", "index", "manifest"} and (
            after.get(("commit", run, name), ABORTED) == ABORTED or _tomb(after, run, name)
        ):
            return f"{kind} of {name} is left"
    for (kind, _, _), value in after.items():
        if kind == "tagged" and _tomb(after, value[0], _chain(after, *value)[-1]):
            return f"tagged {value[1]} stays pruned"
    marked = _marked(after)
    if ("policy", "", "") in after and marked and all(_tomb(after, "a", name) for name in marked):
        return "all that were verified stay pruned"
    return ""


def _tomb(objects: Objects, run: str, name: str) -> str:
    return graves({at[2]: "" for at in objects if at[:2] == ("tomb", run)}).get(name, "")


def _chain(objects: Objects, run: str, name: str) -> list[str]:
    """The save, and what took its place, and so on."""
    chain = [name]
    while (tomb := _tomb(objects, run, chain[-1])) and (by := objects["tomb", run, tomb]):
        chain.append(by)
    return chain


def _lost(objects: Objects, run: str, name: str) -> str:
    packs = objects["commit", run, name]
    if missing := sorted(pack for pack in packs if ("pack", "", pack) not in objects):
        return f"lost pack {missing[0]}"
    for kind in ("index", "manifest"):
        if (kind, run, name) not in objects:
            return f"lost its {kind}"
    return ""


def _late(objects: Objects) -> str:
    """A save that takes another's place has its step and content; any other of attempt 1 must not come late."""
    resumed = objects.get(("resumed", "", ""))
    if resumed is not None:
        steps = {step_of(name) for name in (*resumed, "S3")}
        if any(step_of(name) not in steps for name in _committed(objects)):
            return "the old attempt committed after the new one had resumed"
    return ""


def _policy(objects: Objects) -> str:
    """Where prunes go by a policy: the newest step stands, and one that was verified can be had."""
    if ("policy", "", "") not in objects:
        return ""
    names = _committed(objects)
    if max(map(step_of, names)) not in {step_of(name) for name in names if not _tomb(objects, "a", name)}:
        return "the newest step is pruned"
    marked = _marked(objects)
    swept = [name for name in marked if objects.get(("fate", "a", _tomb(objects, "a", name))) == "swept"]
    return "all that were verified are swept" if marked and swept == marked else ""


def _committed(objects: Objects) -> list[str]:
    return [at[2] for at, value in objects.items() if at[:2] == ("commit", "a") and value != ABORTED]


def _marked(objects: Objects) -> list[str]:
    return [name for name in _committed(objects) if ("verified", "a", name) in objects]
