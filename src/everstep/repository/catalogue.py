"""Which checkpoints there are, newest first: the highest attempt, and in it the highest step."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from everstep.errors import CheckpointNotFound, CheckpointPruned, IntegrityError, InvalidName, UsageError
from everstep.format.ids import SaveId, parse_run, parse_save
from everstep.repository.checkpoint import Checkpoint, checkpoint_of
from everstep.repository.decisions import read_decision
from everstep.repository.keys import commits_prefix, save_of_commit
from everstep.repository.objects import listed
from everstep.repository.parallel import gather
from everstep.repository.replaced import standing, successor
from everstep.repository.repository import Repository
from everstep.repository.runs import ensure_run, find_run, runs
from everstep.repository.tags import find_tag, tags
from everstep.repository.tombs import pruned, tombed

__all__ = [
    "candidates",
    "checkpoint",
    "checkpoints",
    "committed",
    "current",
    "decided",
    "ensure_run",
    "find",
    "find_run",
    "newest",
    "resolve",
    "runs",
    "single",
]

_NEAR = 3


def decided(repo: Repository, run: str) -> Iterator[SaveId]:
    """The saves that have a commit record, newest first, aborted and pruned ones too; one request a page."""
    for found in listed(repo.store, commits_prefix(run)):
        if (save := save_of_commit(run, found.key)) is not None:
            yield save


def candidates(repo: Repository, run: str) -> Iterator[SaveId]:
    """The decided saves that a restore tries in turn, newest first, until one is a checkpoint and whole.

    After one that was given back comes the one that has its place, if it was replaced (repacked) since the list was
    made: that one may not be in it.
    """
    for save in decided(repo, run):
        yield save
        if (after := standing(repo, run, save)) != save:
            yield after


def checkpoint(repo: Repository, run: str, save: SaveId) -> Checkpoint | None:
    """The checkpoint of one decided save, or None when it was aborted or pruned; at most two requests.

    Its tags are not looked up.
    """
    found = committed(repo, run, save)
    return None if found is None or tombed(repo, run, save) else found


def current(repo: Repository, run: str, save: SaveId) -> Checkpoint | None:
    """As `checkpoint`; of one that was replaced (repacked) the checkpoint that has its place."""
    found = committed(repo, run, save)
    return found if found is None or not tombed(repo, run, save) else _instead(repo, run, save)


def _instead(repo: Repository, run: str, save: SaveId) -> Checkpoint | None:
    """The checkpoint that has a pruned one's place, if one has."""
    after = successor(repo, run, save)
    return None if after is None or after == save else current(repo, run, after)


def committed(repo: Repository, run: str, save: SaveId) -> Checkpoint | None:
    """As `checkpoint`, without a look whether it was pruned: for a rank of several, of which one looks."""
    record = read_decision(repo, run, save)
    return checkpoint_of(record, run, save) if record.state == "committed" else None


def newest(repo: Repository, run: str) -> Checkpoint | None:
    """The newest checkpoint, or None when there is none. Its tags are not looked up.

    One page of a list, and two requests for each save that has to be looked at, most times one; three for a pruned one.
    """
    looked_at = (current(repo, run, save) for save in decided(repo, parse_run(run)))
    return next((found for found in looked_at if found is not None), None)


def checkpoints(
    repo: Repository, run: str, *, on_damage: Callable[[IntegrityError], None] | None = None
) -> list[Checkpoint]:
    """All checkpoints of a run with their tags, newest first.

    Of a checkpoint and the one that is to take its place (repacked), and of two that do, one is there. A damaged commit
    record or tag is given to ``on_damage`` and left out; without one it is raised. Raises `RunNotFound`.
    """
    find_run(repo, run)
    gone = pruned(repo, run)
    saves = [save for save in decided(repo, run) if str(save) not in gone]
    found: list[Checkpoint] = []
    for result in gather(lambda save: _read(repo, run, save), saves):
        if isinstance(result, Checkpoint):
            found.append(result)
        elif result is not None and on_damage is None:
            raise result
        elif result is not None and on_damage is not None:
            on_damage(result)
    return _tagged(repo, single(found), on_damage) if found else []


def _read(repo: Repository, run: str, save: SaveId) -> Checkpoint | IntegrityError | None:
    try:
        return committed(repo, run, save)
    except IntegrityError as error:
        return error


def single(found: Sequence[Checkpoint]) -> list[Checkpoint]:
    """Checkpoints of one run, each content once: without those that another of them replaces, or replaces as well."""
    first = {one.replaces: one for one in reversed(found) if one.replaces}
    return [one for one in found if str(one.save) not in first and first.get(one.replaces, one) is one]


def _tagged(
    repo: Repository, found: list[Checkpoint], on_damage: Callable[[IntegrityError], None] | None
) -> list[Checkpoint]:
    """These checkpoints of one run with their tags: also with those of the checkpoints whose place they took."""
    saves = {str(one.save) for one in found}
    taken = {one.replaces: str(one.save) for one in found if one.replaces}
    places = {(one.step, one.attempt) for one in found if one.replaces}
    names: dict[str, list[str]] = defaultdict(list)
    for tag in tags(repo, on_damage=on_damage):
        if tag.run != found[0].run:
            continue
        name, save = tag.save, parse_save(tag.save)
        if name not in saves:
            name = taken.get(name, name)
        if name not in saves and (save.step, save.attempt) in places:
            name = str(standing(repo, tag.run, save))
        names[name].append(tag.tag)
    return [replace(one, tags=tuple(sorted(names.get(str(one.save), ())))) for one in found]


def _with_readable_tags(repo: Repository, found: Checkpoint) -> Checkpoint:
    """With the tags that can be read: a damaged one is told by `checkpoints`, and is no reason not to restore."""
    return _tagged(repo, [found], lambda _damage: None)[0]


def find(repo: Repository, run: str, step: int | None = None) -> Checkpoint:
    """The checkpoint at a step, of the highest attempt that has it; without a step the newest. With its tags.

    Raises `RunNotFound`, `CheckpointPruned`, or `CheckpointNotFound` with the steps nearby.
    """
    if step is not None:
        wanted = [save for save in decided(repo, parse_run(run)) if save.step == step]
        return _first(repo, run, wanted, f"checkpoint at step {step}", step)
    if (found := newest(repo, run)) is not None:
        return _with_readable_tags(repo, found)
    return _first(repo, run, [], "checkpoint", step)


def _first(repo: Repository, run: str, wanted: list[SaveId], what: str, step: int | None) -> Checkpoint:
    gone = False
    for save in wanted:
        found = committed(repo, run, save)
        if found is None:
            continue
        if tombed(repo, run, save):
            gone = True
            found = _instead(repo, run, save)
        if found is not None:
            return _with_readable_tags(repo, found)
    find_run(repo, run)
    hint = _nearby(repo, run, step)
    if gone:
        raise CheckpointPruned(f"the {what} of run {run!r} was pruned", hint=hint, run=run, step=step)
    raise CheckpointNotFound(f"run {run!r} has no {what}", hint=hint, run=run, step=step)


def _nearby(repo: Repository, run: str, step: int | None) -> str:
    gone = pruned(repo, run)
    steps = {save.step for save in decided(repo, run) if str(save) not in gone}
    if not steps or step is None:
        return f"list its checkpoints with: everstep ls {run}"
    near = sorted(sorted(steps, key=lambda other: abs(other - step))[:_NEAR])
    return f"the nearest steps are {', '.join(map(str, near))}"


def resolve(repo: Repository, name: str) -> Checkpoint:
    """The checkpoint that a person names: ``RUN`` (its newest), ``RUN@STEP``, ``RUN@SAVE`` or ``tag:NAME``.

    Raises what `find` raises, `InvalidName`, and `CheckpointNotFound` for an unknown tag.
    """
    if name.startswith("tag:"):
        tag = find_tag(repo, name.removeprefix("tag:"))
        save = parse_save(tag.save)
        return _first(repo, tag.run, [save], f"checkpoint tagged {tag.tag!r} (step {save.step})", save.step)
    run, at, where = name.partition("@")
    if not at:
        return find(repo, run)
    if where.isascii() and where.isdigit():
        return find(repo, run, int(where))
    try:
        save = parse_save(where)
    except InvalidName:
        raise UsageError(
            f"{name!r} names no checkpoint",
            hint="write RUN for the newest, RUN@STEP, or tag:NAME",
            name=name,
        ) from None
    wanted = [found for found in decided(repo, parse_run(run)) if found == save]
    return _first(repo, run, wanted, f"save {save}", save.step)
