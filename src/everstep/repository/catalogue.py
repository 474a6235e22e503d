"""Which checkpoints there are, newest first: the highest attempt, and in it the highest step."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import replace

from everstep.errors import CheckpointNotFound, CheckpointPruned, IntegrityError, InvalidName, UsageError
from everstep.format.ids import SaveId, parse_run, parse_save
from everstep.repository.checkpoint import Checkpoint, checkpoint_of
from everstep.repository.decisions import read_decision
from everstep.repository.keys import commits_prefix, save_of_commit
from everstep.repository.objects import listed
from everstep.repository.parallel import gather
from everstep.repository.repository import Repository
from everstep.repository.runs import ensure_run, find_run, runs
from everstep.repository.tags import find_tag, tags
from everstep.repository.tombs import pruned, tombed

__all__ = [
    "checkpoint",
    "checkpoints",
    "committed",
    "decided",
    "ensure_run",
    "find",
    "find_run",
    "newest",
    "resolve",
    "runs",
]

_NEAR = 3


def decided(repo: Repository, run: str) -> Iterator[SaveId]:
    """The saves that have a commit record, newest first, aborted and pruned ones too; one request a page."""
    for found in listed(repo.store, commits_prefix(run)):
        if (save := save_of_commit(run, found.key)) is not None:
            yield save


def checkpoint(repo: Repository, run: str, save: SaveId) -> Checkpoint | None:
    """The checkpoint of one decided save, or None when it was aborted or pruned; at most two requests.

    Its tags are not looked up.
    """
    found = committed(repo, run, save)
    return None if found is None or tombed(repo, run, save) else found


def committed(repo: Repository, run: str, save: SaveId) -> Checkpoint | None:
    """As `checkpoint`, without a look whether it was pruned: for a rank of several, of which one looks."""
    record = read_decision(repo, run, save)
    return checkpoint_of(record, run, save) if record.state == "committed" else None


def newest(repo: Repository, run: str) -> Checkpoint | None:
    """The newest checkpoint, or None when there is none. Its tags are not looked up.

    One page of a list, and two requests for each save that has to be looked at: most times one.
    """
    looked_at = (checkpoint(repo, run, save) for save in decided(repo, parse_run(run)))
    return next((found for found in looked_at if found is not None), None)


def checkpoints(
    repo: Repository, run: str, *, on_damage: Callable[[IntegrityError], None] | None = None
) -> list[Checkpoint]:
    """All checkpoints of a run with their tags, newest first.

    A damaged commit record or tag is given to ``on_damage`` and left out; without one it is raised.
    Raises `RunNotFound`.
    """
    find_run(repo, run)
    gone = pruned(repo, run)
    saves = [save for save in decided(repo, run) if str(save) not in gone]
    named = _tags_of(repo, run, on_damage) if saves else {}
    found: list[Checkpoint] = []
    for result in gather(lambda save: _read(repo, run, save, named), saves):
        if isinstance(result, Checkpoint):
            found.append(result)
        elif result is not None and on_damage is None:
            raise result
        elif result is not None and on_damage is not None:
            on_damage(result)
    return found


def _read(
    repo: Repository, run: str, save: SaveId, named: dict[str, tuple[str, ...]]
) -> Checkpoint | IntegrityError | None:
    try:
        record = read_decision(repo, run, save)
        if record.state != "committed":
            return None
        return checkpoint_of(record, run, save, named.get(str(save), ()))
    except IntegrityError as error:
        return error


def _tags_of(
    repo: Repository, run: str, on_damage: Callable[[IntegrityError], None] | None
) -> dict[str, tuple[str, ...]]:
    names: dict[str, list[str]] = defaultdict(list)
    for tag in tags(repo, on_damage=on_damage):
        if tag.run == run:
            names[tag.save].append(tag.tag)
    return {save: tuple(sorted(found)) for save, found in names.items()}


def _readable_tags(repo: Repository, found: Checkpoint) -> tuple[str, ...]:
    """The tags that can be read: a damaged one is told by `checkpoints`, and is no reason not to restore."""
    return _tags_of(repo, found.run, lambda _damage: None).get(str(found.save), ())


def find(repo: Repository, run: str, step: int | None = None) -> Checkpoint:
    """The checkpoint at a step, of the highest attempt that has it; without a step the newest. With its tags.

    Raises `RunNotFound`, `CheckpointPruned`, or `CheckpointNotFound` with the steps nearby.
    """
    if step is not None:
        wanted = [save for save in decided(repo, parse_run(run)) if save.step == step]
        return _first(repo, run, wanted, f"checkpoint at step {step}", step)
    if (found := newest(repo, run)) is not None:
        return replace(found, tags=_readable_tags(repo, found))
    return _first(repo, run, [], "checkpoint", step)


def _first(repo: Repository, run: str, wanted: list[SaveId], what: str, step: int | None) -> Checkpoint:
    gone = False
    for save in wanted:
        record = read_decision(repo, run, save)
        if record.state != "committed":
            continue
        if not tombed(repo, run, save):
            found = checkpoint_of(record, run, save)
            return replace(found, tags=_readable_tags(repo, found))
        gone = True
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
