"""What a budget takes: the oldest that nothing protects, until what the store would hold fits."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from everstep.errors import UsageError
from everstep.prices import BILLED_GB
from everstep.retention.candidate import Candidate
from everstep.retention.rules import AtMostMoney, Budget

__all__ = ["Held", "allowed_bytes", "size_text"]


def allowed_bytes(budget: Budget, price_per_gb_month: float | None) -> float:
    """The bytes that a budget allows. Raises `UsageError` for money where no price is known."""
    if not isinstance(budget, AtMostMoney):
        return budget.bytes
    if price_per_gb_month is None:
        raise UsageError(
            f"'{budget}' needs prices, and none are known for this store",
            hint='name them, as --prices azure-hot (everstep prune), or give bytes as "at most 2TB"',
            rule=str(budget),
        )
    return budget.dollars / price_per_gb_month * BILLED_GB if price_per_gb_month > 0 else float("inf")


class Held:
    """The bytes that kept checkpoints hold in the store, each pack counted once.

    A candidate whose packs nobody looked up counts with what its save added to the store.
    """

    def __init__(self, kept: Sequence[Candidate], pack_bytes: Mapping[str, int]) -> None:
        self._pack_bytes = pack_bytes
        self._users = Counter(pack for one in kept for pack in one.packs or ())
        self.bytes = sum(pack_bytes.get(pack, 0) for pack in self._users)
        self.bytes += sum(one.checkpoint.stored_bytes for one in kept if one.packs is None)

    def drop(self, candidate: Candidate) -> None:
        """It is kept no longer."""
        if candidate.packs is None:
            self.bytes -= candidate.checkpoint.stored_bytes
        for pack in candidate.packs or ():
            self._users[pack] -= 1
            if not self._users[pack]:
                self.bytes -= self._pack_bytes.get(pack, 0)


def size_text(count: float) -> str:
    """Bytes in decimal units, with two decimals: ``2.31 TB``."""
    power = next((power for power in range(6) if count < 1000 ** (power + 1)), 6)
    return f"{count:.0f} B" if not power else f"{count / 1000**power:.2f} {'kMGTPE'[power - 1]}B"
