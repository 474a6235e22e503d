"""The rules that a cloud should run by itself over a store, as the document that its own tools take.

They move packs to a cheaper tier and clear uploads that were never finished. They never delete, and touch nothing
but packs: records, manifests and indexes are small, and read at every restore.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from everstep.errors import UsageError
from everstep.retention.tiers import Cloud, Tier, tier_named

__all__ = ["Lifecycle", "document", "plan_lifecycle"]

Document = Mapping[str, object]

_PACKS = "packs/"
_MOST_DAYS = 36_500
_STAYS_DAYS = 7
"""How long what was brought back from Azure's archive stays out of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lifecycle:
    """The rules for one store: the container or bucket, and the prefix in it under which its keys lie.

    ``tier`` None moves nothing. ``abort_after_days`` None clears no uploads. ``warnings`` are for whoever applies it.
    """

    cloud: Cloud
    container: str
    prefix: str
    tier: Tier | None
    cool_after_days: int
    abort_after_days: int | None
    warnings: tuple[str, ...]

    @property
    def packs(self) -> str:
        """The prefix of all packs inside the container."""
        return f"{self.prefix}/{_PACKS}" if self.prefix else _PACKS


def plan_lifecycle(
    cloud: Cloud,
    container: str,
    prefix: str = "",
    *,
    cool_after_days: int | None = None,
    tier: str | None = None,
    abort_after_days: int | None = 7,
) -> Lifecycle:
    """The rules for the store at ``container`` and ``prefix``.

    ``cool_after_days`` moves packs of that age to ``tier``, by default the cloud's usual cool one; None moves nothing.
    A tier that gives no bytes at once must be named, and is warned of. Raises `UsageError` for ages that the cloud
    refuses, and for tiers that it lacks.
    """
    prefix = prefix.strip("/")
    if tier is not None and cool_after_days is None:
        raise UsageError(
            f"the tier {tier} needs an age", hint="say when packs go there, as in --cool-after 30d"
        )
    to = tier_named(cloud, tier) if cool_after_days is not None else None
    warnings = [_REPLACES[cloud]]
    if to is not None:
        assert cool_after_days is not None
        _check_days(cool_after_days, to)
        if not to.instant:
            warnings.append(
                f"{to.name} gives no bytes at once: a restore that needs a pack there stops, and goes on hours after"
                " somebody paid to bring it back; a new checkpoint may share packs as old as its run"
            )
        if to.minimum_days:
            warnings.append(
                f"what is deleted from {to.name} before {to.minimum_days} days is billed for {to.minimum_days} days"
            )
    abort = (
        abort_after_days if cloud != "azure" else None
    )  # Azure drops uncommitted blocks after a week by itself
    if abort is not None and not 1 <= abort <= _MOST_DAYS:
        raise UsageError(f"uploads cannot be cleared after {abort} days", hint="from 1 day on, as in 7")
    return Lifecycle(
        cloud=cloud,
        container=container,
        prefix=prefix,
        tier=to,
        cool_after_days=cool_after_days or 0,
        abort_after_days=abort,
        warnings=tuple(warnings),
    )


_REPLACES: dict[Cloud, str] = {
    "azure": "a management policy is one for the whole storage account: merge it with the rules that are there",
    "s3": "a lifecycle configuration replaces all rules of the bucket: merge it with those that are there",
    "gcs": "a lifecycle file replaces all rules of the bucket: merge it with those that are there",
}


def _check_days(days: int, tier: Tier) -> None:
    if not 1 <= days <= _MOST_DAYS:
        raise UsageError(
            f"packs cannot be moved after {days} days",
            hint=f"from 1 to {_MOST_DAYS} days, as in 30d",
            days=days,
        )
    if days < tier.from_days:
        raise UsageError(
            f"{tier.cloud} moves nothing to {tier.name} before it is {tier.from_days} days old, not after {days}",
            hint=f"say {tier.from_days}d, or name another tier",
            days=days,
        )


def document(lifecycle: Lifecycle) -> Document | None:
    """What the cloud takes; None when there is no rule to run.

    Azure: the policy of ``az storage account management-policy create``. S3: the lifecycle configuration of ``aws s3api
    put-bucket-lifecycle-configuration``. GCS: the file of ``gcloud storage buckets update --lifecycle-file``.
    """
    if lifecycle.tier is None and lifecycle.abort_after_days is None:
        return None
    if lifecycle.cloud == "azure":
        return _azure(lifecycle)
    return _s3(lifecycle) if lifecycle.cloud == "s3" else _gcs(lifecycle)


def _azure(lifecycle: Lifecycle) -> Document:
    """https://learn.microsoft.com/azure/storage/blobs/lifecycle-management-policy-structure."""
    assert lifecycle.tier is not None
    action = f"tierTo{lifecycle.tier.name}"
    age = {"daysAfterModificationGreaterThan": lifecycle.cool_after_days}
    if not lifecycle.tier.instant:  # else what was brought back goes there again the next day
        age["daysAfterLastTierChangeGreaterThan"] = _STAYS_DAYS
    name = re.sub(
        r"[^A-Za-z0-9]", "", f"everstep{lifecycle.container}{lifecycle.prefix}To{lifecycle.tier.name}"
    )
    return {
        "rules": [
            {
                "enabled": True,
                "name": name[:256],
                "type": "Lifecycle",
                "definition": {
                    "filters": {
                        "blobTypes": ["blockBlob"],
                        "prefixMatch": [f"{lifecycle.container}/{lifecycle.packs}"],
                    },
                    "actions": {"baseBlob": {action: age}},
                },
            }
        ]
    }


def _s3(lifecycle: Lifecycle) -> Document:
    """https://docs.aws.amazon.com/AmazonS3/latest/userguide/intro-lifecycle-rules.html."""
    store = f"{lifecycle.prefix}/" if lifecycle.prefix else ""
    rules: list[Document] = []
    if lifecycle.abort_after_days is not None:
        rules.append(
            {
                "ID": f"everstep-unfinished-uploads-{store}"[:255],
                "Status": "Enabled",
                "Filter": {"Prefix": store},
                "AbortIncompleteMultipartUpload": {"DaysAfterInitiation": lifecycle.abort_after_days},
            }
        )
    if lifecycle.tier is not None:
        to = {"Days": lifecycle.cool_after_days, "StorageClass": lifecycle.tier.name}
        rules.append(
            {
                "ID": f"everstep-packs-{store}"[:255],
                "Status": "Enabled",
                "Filter": {"Prefix": lifecycle.packs},
                "Transitions": [to],
            }
        )
    return {"Rules": rules}


def _gcs(lifecycle: Lifecycle) -> Document:
    """https://cloud.google.com/storage/docs/lifecycle."""
    rules: list[Document] = []
    if lifecycle.abort_after_days is not None:
        among = {"matchesPrefix": [f"{lifecycle.prefix}/"]} if lifecycle.prefix else {}
        rules.append(
            {
                "action": {"type": "AbortIncompleteMultipartUpload"},
                "condition": {"age": lifecycle.abort_after_days, **among},
            }
        )
    if lifecycle.tier is not None:
        rules.append(
            {
                "action": {"type": "SetStorageClass", "storageClass": lifecycle.tier.name},
                "condition": {
                    "age": lifecycle.cool_after_days,
                    "matchesPrefix": [lifecycle.packs],
                    "matchesStorageClass": ["STANDARD"],
                },
            }
        )
    return {"lifecycle": {"rule": rules}}
