"""Stops a training again and again, and proves that it ends as if it had never been stopped."""

from __future__ import annotations

import random
import signal
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from everstep.errors import EverstepError, NotFound
from everstep.spot.child import Child, Progress

__all__ = ["Attempt", "DrillFailed", "Outcome", "Scenario", "run_scenario"]

PREEMPTED = 75
_PATIENCE_S = 600.0


class DrillFailed(EverstepError):
    """The script did not do what a drill needs of it."""

    code = "E-DRILL"


class Scenario(StrEnum):
    """The ways a drill runs the script."""

    UNDISTURBED = "undisturbed"
    SIGTERM = "SIGTERM"
    KILL = "kill -9"


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One launch: where it went on from, how far it came, how it ended, and seconds to its first new step.

    ``step_s`` is seconds a step, ``mid_save`` says that it was stopped while a save was under way.
    """

    resumed: int
    reached: int
    exit_code: int
    to_first_step_s: float | None
    step_s: float
    mid_save: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """One scenario's attempts, in order."""

    scenario: Scenario
    attempts: tuple[Attempt, ...]

    @property
    def steps_lost(self) -> int:
        """Steps that were done twice: reached by one attempt, not there when the next one began."""
        return sum(
            max(0, earlier.reached - later.resumed)
            for earlier, later in zip(self.attempts, self.attempts[1:], strict=False)
        )

    @property
    def to_resume_s(self) -> float | None:
        """Median seconds from the start of a process to its first new step, of the attempts that resumed."""
        times = [
            attempt.to_first_step_s for attempt in self.attempts[1:] if attempt.to_first_step_s is not None
        ]
        return statistics.median(times) if times else None


@dataclass(frozen=True, slots=True, kw_only=True)
class _StopAt:
    """When to stop an attempt: once ``step`` is done; and if ``mid_save``, within the next save after it."""

    step: int
    mid_save: bool
    delay_s: float


def _stops(kills: int, total_steps: int, step_s: float, dice: random.Random) -> list[_StopAt]:
    """Stops spread over the run, one in each of ``kills`` equal parts; every other one within a save."""
    return [
        _StopAt(
            step=max(1, int(total_steps * (part + dice.random()) / (kills + 1))),
            mid_save=part % 2 == 1,
            delay_s=dice.random() * step_s,
        )
        for part in range(kills)
    ]


def run_scenario(
    command: Sequence[str],
    *,
    scenario: Scenario,
    environment: dict[str, str],
    log: Path,
    kills: int,
    total_steps: int,
    step_s: float,
    seed: int,
    told: Callable[[str], None],
) -> Outcome:
    """Launch the command until it ends by itself, stopping it ``kills`` times on the way.

    ``total_steps`` and ``step_s`` (seconds) are those of the undisturbed run. Each launch is a new
    process in an empty folder. Raises `DrillFailed` when the script fails, hangs or answers SIGTERM
    with another exit code than 75.
    """
    dice = random.Random(f"{seed}-{scenario}")  # noqa: S311 - not for secrets
    stops = [] if scenario is Scenario.UNDISTURBED else _stops(kills, total_steps, step_s, dice)
    attempts: list[Attempt] = []
    while True:
        stop = stops[len(attempts)] if len(attempts) < len(stops) else None
        with Child(command, environment=environment, log=log) as child:
            attempt = _watch(child, scenario=scenario, stop=stop, dice=dice, log=log)
        attempts.append(attempt)
        told(f"{scenario}: attempt {len(attempts)} went from step {attempt.resumed} to {attempt.reached}")
        if attempt.exit_code == 0:
            return Outcome(scenario=scenario, attempts=tuple(attempts))
        if stop is None or not _stopped(attempt, total_steps):
            raise DrillFailed(
                f"the script ended with exit code {attempt.exit_code} in the {scenario} run",
                hint=f"read what it printed: {_tail(log)}",
                exit_code=attempt.exit_code,
            )


def _stopped(attempt: Attempt, total_steps: int) -> bool:
    """Whether the launch ended as one that was told to stop. After its last step no loop takes a SIGTERM any more."""
    ended_before = attempt.exit_code == -signal.SIGTERM and attempt.reached >= total_steps
    return ended_before or attempt.exit_code in {PREEMPTED, -signal.SIGKILL}


def _watch(
    child: Child, *, scenario: Scenario, stop: _StopAt | None, dice: random.Random, log: Path
) -> Attempt:
    first_s: float | None = None
    mid_save = False
    moved_at, seen = time.monotonic(), -1
    begun_at_stop: int | None = None
    while child.ended() is None:
        now = child.progress()
        if now.steps != seen:
            seen, moved_at = now.steps, time.monotonic()
        if first_s is None and now.steps > now.resumed:
            first_s = time.monotonic() - child.started
        if stop is not None and now.steps >= stop.step and first_s is not None:
            if begun_at_stop is None:
                begun_at_stop = now.begun
            if not stop.mid_save or (now.saving and now.begun > begun_at_stop):
                time.sleep(stop.delay_s * (dice.random() if stop.mid_save else 1))
                mid_save = child.progress().saving
                _stop(child, scenario)
                break
        if time.monotonic() - moved_at > _PATIENCE_S:
            raise DrillFailed(
                f"the script did no step for {_PATIENCE_S:.0f} s",
                hint=f"it must train inside `for step in ckpt.loop(state, until=N)`; it printed: {_tail(log)}",
            )
        child.pause()
    code = child.wait(_PATIENCE_S)
    if code is None:
        raise DrillFailed(
            f"the script still ran {_PATIENCE_S:.0f} s after SIGTERM", hint="save at a step boundary and exit"
        )
    last: Progress = child.progress()
    stepping_s = time.monotonic() - child.started - (first_s or 0.0)
    return Attempt(
        resumed=last.resumed,
        reached=max(last.steps, last.resumed),
        exit_code=code,
        to_first_step_s=first_s,
        step_s=stepping_s / max(1, last.steps - last.resumed),
        mid_save=mid_save,
    )


def _stop(child: Child, scenario: Scenario) -> None:
    if scenario is Scenario.KILL:
        child.kill_session()
    else:
        child.send(signal.SIGTERM)


def _tail(log: Path) -> str:
    try:
        return log.read_text(errors="replace")[-2000:]
    except FileNotFoundError as error:
        raise NotFound(f"no output was kept at {log}") from error
