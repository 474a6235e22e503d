"""The cheaper tiers of each cloud: what they ask for, and from which age on they pay."""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from typing import Literal

from everstep.errors import UsageError
from everstep.prices import BILLED_GB, MONTH_S, Prices, prices

__all__ = ["CLOUDS", "Cloud", "Tier", "breaks_even_days", "cloud_of", "hot_prices", "tier_named", "tiers_of"]

Cloud = Literal["azure", "s3", "gcs"]

CLOUDS: dict[str, Cloud] = {"az": "azure", "s3": "s3", "gs": "gcs"}
"""By the scheme of a store's address."""

_HOT = {"azure": "azure-hot", "s3": "s3-standard", "gcs": "gcs-standard"}
_MONTH_DAYS = MONTH_S / 86_400
_USUAL_PACK = 256 * 2**20


@dataclass(frozen=True, slots=True, kw_only=True)
class Tier:
    """A tier in the cloud's own word. ``instant``: objects in it are read at once, as before.

    ``prices`` is its name in `everstep.prices`; ``from_days`` the youngest objects that a rule may move there.
    """

    cloud: Cloud
    name: str
    prices: str
    instant: bool
    from_days: int = 0

    @property
    def minimum_days(self) -> int:
        """What is deleted or moved earlier is billed for so many days."""
        return int(prices(self.prices).minimum_days)


# S3 refuses rules that move objects to Standard-IA before they are 30 days old:
# https://docs.aws.amazon.com/AmazonS3/latest/userguide/lifecycle-transition-general-considerations.html
_TIERS = (
    Tier(cloud="azure", name="Cool", prices="azure-cool", instant=True),
    Tier(cloud="azure", name="Cold", prices="azure-cold", instant=True),
    Tier(cloud="azure", name="Archive", prices="azure-archive", instant=False),
    Tier(cloud="s3", name="STANDARD_IA", prices="s3-standard-ia", instant=True, from_days=30),
    Tier(cloud="s3", name="GLACIER_IR", prices="s3-glacier-ir", instant=True),
    Tier(cloud="s3", name="GLACIER", prices="s3-glacier", instant=False),
    Tier(cloud="s3", name="DEEP_ARCHIVE", prices="s3-deep-archive", instant=False),
    Tier(cloud="gcs", name="NEARLINE", prices="gcs-nearline", instant=True),
    Tier(cloud="gcs", name="COLDLINE", prices="gcs-coldline", instant=True),
    Tier(cloud="gcs", name="ARCHIVE", prices="gcs-archive", instant=True),
)


def cloud_of(url: str) -> Cloud | None:
    """The cloud of a store's address; None for disks and memory."""
    scheme, sep, _ = url.partition("://")
    return CLOUDS.get(scheme.lower()) if sep else None


def tiers_of(cloud: Cloud) -> tuple[Tier, ...]:
    """The tiers of a cloud, the usual one first."""
    return tuple(tier for tier in _TIERS if tier.cloud == cloud)


def tier_named(cloud: Cloud, name: str | None = None) -> Tier:
    """The tier of that name, without one the usual cool tier. Raises `UsageError` with the names there are."""
    found = tiers_of(cloud)
    if name is None:
        return found[0]
    for tier in found:
        if tier.name.lower() == name.lower().replace("-", "_"):
            return tier
    names = [tier.name for tier in found]
    near = difflib.get_close_matches(name.upper(), [one.upper() for one in names], n=1)
    meant = f"did you mean {near[0]}? " if near else ""
    raise UsageError(
        f"{cloud} has no tier {name!r}", hint=f"{meant}its tiers are {', '.join(names)}", tier=name
    )


def hot_prices(cloud: Cloud) -> Prices:
    """What the tier costs that objects are written to."""
    return prices(_HOT[cloud])


def breaks_even_days(tier: Tier, cool_after_days: float, *, pack_bytes: int = _USUAL_PACK) -> float:
    """The age in days from which on a pack that is moved at ``cool_after_days`` has cost less than one that stayed.

    Moved at age N into a tier with M minimum days, and deleted at age L > N, a gigabyte costs
    ``max(L - N, M) * cool + transition``, else ``(L - N) * hot``, with prices by the day. The transition is one write
    in the new tier for each pack. Reads are left out: each read of a gigabyte in the tier costs ``read_gb`` more.
    Infinite where the tier is not cheaper.
    """
    hot, cool = hot_prices(tier.cloud), prices(tier.prices)
    by_day, cool_by_day = hot.gb_month / _MONTH_DAYS, cool.gb_month / _MONTH_DAYS
    transition = cool.write_1k / 1000 * BILLED_GB / pack_bytes
    if cool_by_day >= by_day:
        return float("inf")
    within_minimum = (tier.minimum_days * cool_by_day + transition) / by_day
    if within_minimum <= tier.minimum_days:
        return cool_after_days + within_minimum
    return cool_after_days + transition / (by_day - cool_by_day)
