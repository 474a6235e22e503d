"""What a store costs where nobody says it: the usual tier of its cloud."""

from __future__ import annotations

from everstep.prices import Prices, prices

__all__ = ["usual_prices"]

_USUAL = {"az": "azure-hot", "s3": "s3-standard", "gs": "gcs-standard"}


def usual_prices(url: str) -> Prices | None:
    """The list prices of the store's cloud, by the scheme of its address; None for a disk and for memory."""
    usual = _USUAL.get(url.partition("://")[0].lower())
    return None if usual is None else prices(usual)
