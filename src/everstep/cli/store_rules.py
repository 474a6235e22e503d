"""What a cloud should do over a store by itself: advice by what its runs keep, and the rules to set."""

from __future__ import annotations

import math
from itertools import islice
from shlex import quote
from typing import TYPE_CHECKING

from everstep.cli.surroundings import target_of
from everstep.errors import EverstepError, NotFound, UsageError
from everstep.store.probe import Check, Status

if TYPE_CHECKING:
    from everstep.repository.repository import Repository
    from everstep.retention.lifecycle import Lifecycle
    from everstep.retention.lives import Fit
    from everstep.retention.tiers import Tier
    from everstep.store.protocol import Store
    from everstep.store.target import Target

__all__ = ["advice", "days_of", "how_to_apply", "rules_for"]

_DAY_S = 86_400
_USUAL_DAYS = 30
_MOST_RUNS = 20
_MOST_RECORDS = 1000


def days_of(text: str) -> int:
    """Whole days in ``30d`` or ``2w``. Raises `UsageError`."""
    from everstep.units import parse_seconds

    try:
        days = parse_seconds(text) / _DAY_S
    except ValueError:
        days = math.nan
    if not days.is_integer():
        raise UsageError(f"--cool-after {text} is no number of days", hint="write it as 30d or 8w")
    return int(days)


def rules_for(url: str, *, cool_after: int | None, tier: str | None) -> Lifecycle:
    """The rules for the store at this address. Raises `UsageError`, also for a store that is no cloud's."""
    from everstep.retention.lifecycle import plan_lifecycle
    from everstep.retention.tiers import cloud_of

    cloud = cloud_of(url)
    if cloud is None:
        raise UsageError(
            "only cloud stores run rules of their own",
            hint="name an az://, s3:// or gs:// store with --store",
        )
    place = target_of(url).place
    return plan_lifecycle(cloud, place.container, place.prefix, cool_after_days=cool_after, tier=tier)


def how_to_apply(url: str) -> str:
    """The command of the cloud's own tool that sets the document, saved as ``lifecycle.json``."""
    target = target_of(url)
    name = quote(target.place.container)
    match target.kind:
        case "azure":
            account = quote(_account(target))
            return (
                f"az storage account management-policy create --account-name {account} --resource-group GROUP"
                " --policy @lifecycle.json"
            )
        case "s3":
            return (
                f"{_aws(target)} put-bucket-lifecycle-configuration --bucket {name}"
                " --lifecycle-configuration file://lifecycle.json"
            )
        case _:
            return f"gcloud storage buckets update gs://{name} --lifecycle-file=lifecycle.json"


def advice(url: str, store: Store) -> list[Check]:
    """What to look at in the settings of the bucket or account, which no request of a training can see."""
    target = target_of(url)
    return [_uploads(target), _tiers(target, store), _deleted(target)]


def _uploads(target: Target) -> Check:
    name = "unfinished uploads"
    if target.kind == "azure":
        return Check(
            name=name, status=Status.OK, found="Azure clears what was never committed after a week by itself"
        )
    bucket = quote(target.place.container)
    look = {
        "s3": f"{_aws(target)} get-bucket-lifecycle-configuration --bucket {bucket}",
        "gcs": f"gcloud storage buckets describe gs://{bucket} --format='json(lifecycle_config)'",
    }[target.kind]
    return Check(
        name=name,
        status=Status.ADVICE,
        found="everstep leaves none; other tools' are paid for until a rule of the bucket clears them, not seen here",
        hint=f"look with: {look}; the rule: everstep doctor --lifecycle",
    )


def _tiers(target: Target, store: Store) -> Check:
    from everstep.retention.lives import Verdict
    from everstep.retention.tiers import tier_named

    if target.kind == "s3" and not _is_amazon(target):
        host = target.endpoint.host
        return Check(
            name="tiers",
            status=Status.SKIPPED,
            found=f"{host} is not Amazon's: it has tiers and prices of its own",
        )
    tier = tier_named(target.kind)
    try:
        fits = _fits(store, tier)
    except EverstepError as error:
        return Check(name="tiers", status=Status.SKIPPED, found=error.message, hint=error.hint)
    if not fits:
        return Check(
            name="tiers", status=Status.SKIPPED, found="there is no run yet whose packs could be moved"
        )
    run, longest = max(fits, key=lambda one: -1.0 if one[1].days is None else one[1].days)
    among = f" (of {len(fits)} runs the one that keeps longest)" if len(fits) > 1 else ""
    found = f"{run}{among}: {longest.words}"
    if longest.verdict is Verdict.FITS:
        how = f"the rule: everstep doctor --lifecycle --cool-after {_USUAL_DAYS}d"
        return Check(name="tiers", status=Status.ADVICE, found=found, hint=how)
    return Check(name="tiers", status=Status.OK, found=f"{found}; leave packs where they are")


def _fits(store: Store, tier: Tier) -> list[tuple[str, Fit]]:
    """What a rule at the usual age would do for each run, for twenty runs at most: four requests each."""
    from everstep.repository.opening import open_repository
    from everstep.repository.runs import runs
    from everstep.retention.lives import fit
    from everstep.retention.standing import standing_policy

    try:
        repository = open_repository(store, create=False)
    except NotFound:
        return []
    newest = sorted(runs(repository), key=lambda record: -record.created)[:_MOST_RUNS]
    return [
        (
            record.run,
            fit(
                standing_policy(repository, record.run),
                _interval_s(repository, record.run),
                tier,
                _USUAL_DAYS,
            ),
        )
        for record in newest
    ]


def _interval_s(repository: Repository, run: str) -> float | None:
    """The usual time between two saves, by the store's clock over the newest thousand; None before there are two."""
    from everstep.repository.keys import commits_prefix

    records = list(islice(repository.store.list(commits_prefix(run)), _MOST_RECORDS))
    times = sorted(record.modified for record in records)
    return (times[-1] - times[0]) / (len(times) - 1) if len(times) > 1 else None


def _deleted(target: Target) -> Check:
    name = quote(target.place.container)
    look = {
        "azure": f"az storage account blob-service-properties show --account-name {quote(_account(target))}"
        " --query '[deleteRetentionPolicy,isVersioningEnabled]'",
        "s3": f"{_aws(target)} get-bucket-versioning --bucket {name}",
        "gcs": f"gcloud storage buckets describe gs://{name} --format='json(soft_delete_policy,versioning_enabled)'",
    }[target.kind]
    also = "; GCS has soft delete for a week unless somebody turned it off" if target.kind == "gcs" else ""
    return Check(
        name="deleted bytes",
        status=Status.ADVICE,
        found="soft delete or versioning may keep deleted packs, which are paid for: a setting that is not seen here",
        hint=f"look with: {look}{also}",
    )


def _aws(target: Target) -> str:
    """The tool, told of an endpoint that is not Amazon's."""
    where = "" if _is_amazon(target) else f" --endpoint-url {quote(target.endpoint.url)}"
    return f"aws{where} s3api"


def _is_amazon(target: Target) -> bool:
    return target.endpoint.host.endswith((".amazonaws.com", ".amazonaws.com.cn"))


def _account(target: Target) -> str:
    return str(target.config.get("account_name", ""))
