"""What a store costs where nobody says it: the usual tier of its cloud."""

from __future__ import annotations

from everstep.errors import UsageError
from everstep.prices import Prices, prices
from everstep.retention.policy import Policy
from everstep.retention.rules import AtMostMoney

__all__ = ["check_priced", "usual_prices"]

_USUAL = {"az": "azure-hot", "s3": "s3-standard", "gs": "gcs-standard"}


def usual_prices(url: str) -> Prices | None:
    """The list prices of the store's cloud, by the scheme of its address; None for a disk and for memory."""
    usual = _USUAL.get(url.partition("://")[0].lower())
    return None if usual is None else prices(usual)


def check_priced(policy: Policy, url: str) -> None:
    """Raise `UsageError` for a budget of money on a store that has no price: it could never be kept to."""
    for rule in policy.budgets:
        if isinstance(rule, AtMostMoney) and usual_prices(url) is None:
            raise UsageError(
                f"the rule '{rule}' is about money, and bytes in {url} have no price",
                hint='write it in bytes, as "at most 2TB"; `everstep prune --prices NAME` takes any price',
                rule=str(rule),
            )
