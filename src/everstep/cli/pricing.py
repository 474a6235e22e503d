"""Which prices a command reckons with."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from everstep.prices import Prices

__all__ = ["money_text", "prices_for"]


def prices_for(named: str | None, url: str) -> Prices | None:
    """The prices of that name or TOML file; without one the usual ones of the store's cloud, None for a disk.

    Raises `UsageError` with the names there are.
    """
    from everstep.prices import load, prices
    from everstep.retention.store_prices import usual_prices

    if named is None:
        return usual_prices(url)
    if named.endswith(".toml") or "/" in named:
        return load(Path(named))
    return prices(named)


def money_text(dollars: float) -> str:
    """Dollars as people write them: cents where they count, more digits for less than a cent."""
    return f"${dollars:,.2f}" if dollars >= 0.01 or dollars == 0 else f"${dollars:.2g}"
