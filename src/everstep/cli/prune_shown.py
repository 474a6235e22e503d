"""What ``everstep prune`` shows: every checkpoint with its verdict and reasons, bytes, money."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from everstep.cli import output
from everstep.cli.describe import checkpoint_fields, checkpoint_words
from everstep.cli.pricing import money_text
from everstep.prices import BILLED_GB, Prices

if TYPE_CHECKING:
    from everstep.cli.pruning import Pruning
    from everstep.errors import EverstepError
    from everstep.retention.choice import Verdict
    from everstep.retention.prune import Pruned, PrunePlan
    from everstep.retention.sweep import Swept

__all__ = ["Shown"]


class Shown:
    """The words and the document of one prune."""

    def __init__(self, work: Pruning, prices: Prices | None, *, grace: str, dry_run: bool) -> None:
        self._work = work
        self._prices = prices
        self._grace = grace
        self._dry_run = dry_run
        self._repackable: int | None = None

    def plans(self) -> None:
        """A line for each checkpoint; of runs that are not pruned a word."""
        verdicts = [one for plan in self._work.plans for one in _told(plan)]
        if verdicts:
            output.table(
                ("CHECKPOINT", "ATTEMPT", "CREATED", "SIZE", "VERDICT", "REASONS"),
                [
                    (
                        checkpoint_words(one.checkpoint),
                        str(one.checkpoint.attempt),
                        output.time_text(one.checkpoint.created),
                        output.bytes_text(one.checkpoint.bytes),
                        "keep" if one.keep else "delete",
                        "; ".join(one.reasons),
                    )
                    for one in verdicts
                ],
                right=("ATTEMPT", "SIZE"),
            )
        for plan in self._work.plans:
            for note in plan.choice.notes:
                output.say(f"{plan.run}: {note}")
        if self._work.asked.without:
            output.say(f"no policy, so all is kept: {', '.join(self._work.asked.without)}")

    def question(self) -> str:
        """What a person is asked."""
        if not self._victims:
            return f"nothing is to be deleted; sweep what was pruned {self._grace} ago or earlier?"
        return f"delete {self._what()}?"

    def told_of_repack(self, count: int | None) -> None:
        """What a repack would free."""
        self._repackable = count

    def outcome(self) -> None:
        """What was done; of a dry run what would be."""
        if self._dry_run:
            output.line(f"would delete {self._what()}" if self._victims else "would delete nothing")
            if self._repackable is not None:
                output.line(f"a repack would free {self._size(self._repackable)}")
            return
        gone = self._sum(lambda one: one.bytes)
        objects = self._sum(lambda one: one.objects)
        output.line(
            f"{_many(self._pruned)} pruned; {self._size(gone)} freed, in {_counted(objects, 'object')}"
        )
        if self._waiting:
            output.line(
                f"{_many(self._waiting)} can be undeleted until the first prune after {self._grace}:"
                " everstep undelete RUN --list"
            )
        if self._work.repacked is not None:
            done = self._work.repacked
            output.line(
                f"repacked: {_many(len(done.rewritten))} written anew ({output.bytes_text(done.bytes_written)});"
                f" {_counted(len(done.packs), 'pack')} less, {self._size(max(0, done.bytes_freed))}"
                + (f", {self._size(done.bytes_waiting)} of it after the grace" if done.bytes_waiting else "")
            )
            if done.gave_up:
                output.say(f"the repack ended early, the next one goes on: {done.gave_up}")

    def refusal(self, error: EverstepError) -> None:
        """Of a run that was left as it is."""
        output.say(f"refused [{error.code}]: {output.printable(error.message)}")
        if error.hint:
            output.say(f"hint: {output.printable(error.hint)}")

    def fields(self) -> dict[str, object]:
        """The document."""
        return {
            "dry_run": self._dry_run,
            "runs": [self._plan_fields(plan) for plan in self._work.plans],
            "without_policy": list(self._work.asked.without),
            "refused": [
                {"run": run, "code": error.code, "message": output.jsonable(error.message)}
                for run, error in self._work.refused.items()
            ],
            "prices": self._price_fields(),
            "kept": sum(len(plan.choice.kept) for plan in self._work.plans),
            "deleted": self._victims,
            "frees_bytes": self._frees,
            "frees_dollars_a_month": self._dollars(self._frees),
            "repack_frees_bytes": self._repackable,
            "done": None if self._dry_run else self._done_fields(),
        }

    @property
    def _victims(self) -> int:
        return sum(len(plan.victims) for plan in self._work.plans)

    @property
    def _frees(self) -> int | None:
        """None where a checkpoint that stays cannot be read."""
        found = [plan.frees_bytes for plan in self._work.plans]
        known = [count for count in found if count is not None]
        return sum(known) if len(known) == len(found) else None

    @property
    def _pruned(self) -> int:
        return sum(len(one.tombed) for one in self._work.pruned)

    @property
    def _done(self) -> list[Pruned | Swept]:
        return [*self._work.pruned, *self._work.swept]

    @property
    def _waiting(self) -> int:
        done = self._done
        swept = {place for one in done for place in (*one.swept, *one.undeleted)}
        return len({place for one in done for place in one.waiting} - swept)

    def _sum(self, number: Callable[[Pruned | Swept], int]) -> int:
        return sum(number(one) for one in self._done)

    def _what(self) -> str:
        of = sum(len(plan.choice.verdicts) for plan in self._work.plans)
        frees = "nothing while one that stays is damaged" if self._frees is None else self._size(self._frees)
        return f"{self._victims} of {_many(of)}, which frees {frees}"

    def _size(self, count: int) -> str:
        dollars = self._dollars(count)
        return output.bytes_text(count) + ("" if dollars is None else f" ({money_text(dollars)} a month)")

    def _dollars(self, count: int | None) -> float | None:
        return None if count is None or self._prices is None else count / BILLED_GB * self._prices.gb_month

    def _plan_fields(self, plan: PrunePlan) -> dict[str, object]:
        return {
            "run": plan.run,
            "keep": self._work.asked.policies[plan.run].text(),
            "notes": list(plan.choice.notes),
            "frees_bytes": plan.frees_bytes,
            "frees_dollars_a_month": self._dollars(plan.frees_bytes),
            "checkpoints": [
                {
                    **checkpoint_fields(one.checkpoint),
                    "keep": one.keep,
                    "reasons": [output.jsonable(reason) for reason in one.reasons],
                }
                for one in plan.choice.verdicts
            ],
        }

    def _price_fields(self) -> dict[str, object] | None:
        if self._prices is None:
            return None
        return {
            "name": self._prices.name,
            "as_of": str(self._prices.as_of),
            "source": self._prices.source,
            "gb_month": self._prices.gb_month,
        }

    def _done_fields(self) -> dict[str, object]:
        done = self._work.repacked
        return {
            "pruned": [checkpoint_fields(one) for each in self._work.pruned for one in each.tombed],
            "waiting": self._waiting,
            "packs": self._sum(lambda one: one.packs),
            "objects": self._sum(lambda one: one.objects),
            "bytes": self._sum(lambda one: one.bytes),
            "dollars_a_month": self._dollars(self._sum(lambda one: one.bytes)),
            "repacked": None
            if done is None
            else {
                "checkpoints": len(done.rewritten),
                "packs": len(done.packs),
                "bytes_freed": done.bytes_freed,
                "bytes_waiting": done.bytes_waiting,
                "bytes_written": done.bytes_written,
                "gave_up": done.gave_up,
            },
        }


def _told(plan: PrunePlan) -> list[Verdict]:
    """All verdicts; where only some were given up by name, those."""
    by_name = all(one.keep or "asked for" in one.reasons for one in plan.choice.verdicts)
    dropped = [one for one in plan.choice.verdicts if not one.keep]
    return dropped if by_name and dropped else list(plan.choice.verdicts)


def _many(count: int) -> str:
    return _counted(count, "checkpoint")


def _counted(count: int, what: str) -> str:
    return f"1 {what}" if count == 1 else f"{count} {what}s"
