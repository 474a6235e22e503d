"""The retention policy that a run goes by: its newest launch's, else the one that it began with."""

from __future__ import annotations

from everstep.errors import UsageError
from everstep.repository.fence import attempts_after, read_attempt
from everstep.repository.repository import Repository
from everstep.repository.runs import find_run
from everstep.retention.policy import Policy, parse_keep

__all__ = ["standing_policy"]


def standing_policy(repo: Repository, run: str) -> Policy | None:
    """The policy, or None where none was ever given; three requests.

    Raises `RunNotFound`, and `UsageError` for a policy in words that this version does not know.
    """
    record = find_run(repo, run)
    numbers = attempts_after(repo, run, 0)
    keep = (read_attempt(repo, run, numbers[-1]).keep if numbers else "") or record.keep
    if not keep:
        return None
    try:
        return parse_keep(keep)
    except UsageError as error:
        raise UsageError(
            f"run {run!r} keeps {keep!r}, which this version does not understand: {error.message}",
            hint=f"{error.hint}; or give another with --keep",
            run=run,
            keep=keep,
        ) from error
