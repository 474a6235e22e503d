"""A retention policy: rules whose union is kept, and budgets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import get_args

from everstep.errors import UsageError
from everstep.retention.rules import Budget, KeepBest, KeepEvery, Rule
from everstep.retention.words import ALL, FORMS, parse_rules

__all__ = ["Policy", "parse_keep"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """Keeps what any of its rules keeps; with budgets alone everything that they leave. No rule keeps all.

    What is newest, newest verified, tagged or being read is kept by every policy. Raises `UsageError` for
    rules that contradict each other.
    """

    rules: tuple[Rule, ...] = ()

    def __post_init__(self) -> None:
        """Refuse contradictions; a rule that stands twice stands once."""
        seen: dict[object, Rule] = {}
        for rule in self.rules:
            standing = seen.setdefault(_subject(rule), rule)
            if standing != rule:
                raise UsageError(
                    f"the rules '{standing}' and '{rule}' contradict each other",
                    hint=f'leave one of them out: "{standing}" or "{rule}"',
                    rules=(str(standing), str(rule)),
                )
        object.__setattr__(self, "rules", tuple(seen.values()))

    @property
    def keeps_all(self) -> bool:
        """Whether nothing is ever deleted."""
        return not self.rules

    @property
    def keeping(self) -> tuple[Rule, ...]:
        """The rules that keep."""
        return tuple(rule for rule in self.rules if not isinstance(rule, Budget))

    @property
    def budgets(self) -> tuple[Budget, ...]:
        """The budgets."""
        return tuple(rule for rule in self.rules if isinstance(rule, Budget))

    def text(self) -> str:
        """The policy as `parse_keep` reads it."""
        return ", ".join(map(str, self.rules)) or ALL

    def __str__(self) -> str:
        return self.text()


def parse_keep(keep: str | Rule | Policy | Sequence[Rule | str] | None) -> Policy:
    """A policy from what a user writes: ``"last 3, best 2 by val_loss"``, rules, a list of both.

    None, an empty text and ``"all"`` keep everything. Raises `UsageError` that names what cannot be read, and
    how it is written.
    """
    if isinstance(keep, Policy):
        return keep
    if keep is None:
        return Policy()
    given = [keep] if isinstance(keep, str | Rule) else keep
    if isinstance(given, bytes | bytearray) or not isinstance(given, Sequence):
        raise _no_policy(keep)
    if not given:
        raise UsageError(
            "keep=[] holds no rule, which would keep nothing",
            hint='write keep="all" to keep everything, or rules as keep="last 3"',
        )
    found: list[Rule | None] = []
    for one in given:
        if isinstance(one, str):
            if not one.strip() and one is not keep:
                raise UsageError(
                    "a rule in the list is an empty text", hint='write each as "last 3" or "daily 7"'
                )
            found += parse_rules(one)
        elif isinstance(one, Rule):
            found.append(one)
        else:
            raise _no_policy(one)
    rules = tuple(rule for rule in found if rule is not None)
    keeping = [rule for rule in rules if not isinstance(rule, Budget)]
    if None in found and keeping:
        raise UsageError(
            f"'all' keeps everything, and '{keeping[0]}' does not: they contradict each other",
            hint=f'leave one of them out: "all" or "{keeping[0]}"',
        )
    return Policy(rules=rules)


def _no_policy(given: object) -> UsageError:
    if isinstance(given, type) and given in get_args(Rule):
        what = f"{given.__name__} without its number"
    else:
        what = f"{given!r:.60} ({type(given).__name__})"
    return UsageError(
        f"{what} is no retention policy",
        hint=f"write it as a text of rules ({', '.join(FORMS.values())}), as rules, or as a list of rules",
    )


def _subject(rule: Rule) -> object:
    """What only one rule of a policy may speak about."""
    match rule:
        case KeepBest():
            return (KeepBest, rule.metric)
        case KeepEvery():
            return (KeepEvery, rule.steps)
        case _:
            return type(rule)
