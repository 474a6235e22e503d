"""A whole drill: every scenario in a store of its own, and the final checkpoints held against each other."""

from __future__ import annotations

import shlex
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from everstep.errors import NotFound
from everstep.format.ids import RunId
from everstep.repository.catalogue import checkpoints, newest
from everstep.repository.checkpoint import Checkpoint
from everstep.repository.opening import open_repository
from everstep.repository.repository import Repository
from everstep.spot.drill import DrillFailed, Outcome, Scenario, run_scenario
from everstep.store.opening import open_store
from everstep.store.protocol import Store
from everstep.transfer.compare import Difference, compare
from everstep.transfer.contents import Contents

__all__ = ["Drill", "Report", "Verdict", "drill", "forget"]

RUN = RunId("drill")


@dataclass(frozen=True, slots=True, kw_only=True)
class Drill:
    """What to run and how often to stop it; ``store`` is a URL under which each scenario gets its own store."""

    command: tuple[str, ...]
    store: str
    kills: int
    seed: int
    log_folder: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """One scenario: what happened, what it ended with, and what differs from the undisturbed run.

    ``saved_bytes`` is the size of all its checkpoints' states, ``stored_bytes`` what its store holds.
    """

    outcome: Outcome
    final: Checkpoint
    checkpoints: int
    saved_bytes: int
    stored_bytes: int
    leaves: int
    differences: tuple[Difference, ...]
    metrics_differ: tuple[str, ...]

    @property
    def equal(self) -> bool:
        """Whether it ended at the same step with the same bits."""
        return not self.differences and not self.metrics_differ


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """The verdicts, the undisturbed run first."""

    verdicts: tuple[Verdict, ...]

    @property
    def equal(self) -> bool:
        """Whether nothing differs anywhere."""
        return all(verdict.equal for verdict in self.verdicts)


def drill(asked: Drill, *, told: Callable[[str], None]) -> Report:
    """Run the command undisturbed, under SIGTERM and under kill -9, and compare what each ended with.

    Raises `DrillFailed` when the script fails, hangs, saves nowhere or does no steps.
    """
    told(f"running: {shlex.join(asked.command)}")
    total_steps, step_s = 0, 0.0
    verdicts: list[Verdict] = []
    reference: Contents | None = None
    for scenario in Scenario:
        store = open_store(_place(asked, scenario))
        outcome = run_scenario(
            asked.command,
            scenario=scenario,
            environment={"EVERSTEP_STORE": _place(asked, scenario), "EVERSTEP_RUN": RUN},
            log=asked.log_folder / f"{scenario.name.lower()}.log",
            kills=asked.kills,
            total_steps=total_steps,
            step_s=step_s,
            seed=asked.seed,
            told=told,
        )
        if scenario is Scenario.UNDISTURBED:
            total_steps, step_s = outcome.attempts[0].reached, outcome.attempts[0].step_s
        verdict, contents = _judge(_repository(store), outcome, reference)
        reference = reference or contents
        verdicts.append(verdict)
    return Report(verdicts=tuple(verdicts))


def _place(asked: Drill, scenario: Scenario) -> str:
    return f"{asked.store.rstrip('/')}/{scenario.name.lower()}"


def _repository(store: Store) -> Repository:
    try:
        return open_repository(store, create=False)
    except NotFound as error:
        raise DrillFailed(
            "the script saved nothing in the store of the drill",
            hint="use es.Checkpointer() without a store and a run: EVERSTEP_STORE and EVERSTEP_RUN name them",
        ) from error


def _judge(repository: Repository, outcome: Outcome, reference: Contents | None) -> tuple[Verdict, Contents]:
    final = newest(repository, RUN)
    if final is None:
        raise DrillFailed(
            "the script committed no checkpoint", hint="save at the end, as `for step in ckpt.loop(...)` does"
        )
    if outcome.attempts[-1].reached == 0:
        raise DrillFailed(
            "the script did no step", hint="train inside `for step in ckpt.loop(state, until=N)`"
        )
    contents = Contents(repository, final)
    against = reference or contents
    comparison = compare(against, contents)
    all_of_them = checkpoints(repository, RUN)
    return Verdict(
        outcome=outcome,
        final=final,
        checkpoints=len(all_of_them),
        saved_bytes=sum(one.bytes for one in all_of_them),
        stored_bytes=sum(listed.size for listed in repository.store.list("")),
        leaves=comparison.leaves,
        differences=comparison.differences,
        metrics_differ=_metrics_differ(against.checkpoint, final),
    ), contents


def _metrics_differ(a: Checkpoint, b: Checkpoint) -> tuple[str, ...]:
    """Names of metrics, and ``step``, that are not the same; compared as text, so that NaN equals NaN."""
    ours = {"step": repr(a.step), **{name: repr(value) for name, value in a.metrics.items()}}
    theirs = {"step": repr(b.step), **{name: repr(value) for name, value in b.metrics.items()}}
    return tuple(sorted(name for name in ours.keys() | theirs.keys() if ours.get(name) != theirs.get(name)))


def forget(asked: Drill) -> None:
    """Delete what the drill put into the store: on a disk the folders that it made, elsewhere each object."""
    for scenario in Scenario:
        place = _place(asked, scenario)
        if "://" not in place or place.startswith("file://"):
            shutil.rmtree(place.removeprefix("file://"), ignore_errors=True)
            continue
        store = open_store(place)
        for key in [listed.key for listed in store.list("")]:
            store.delete(key)
