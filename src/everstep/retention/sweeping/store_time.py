"""What time it is by the store's own clock: the only clock that a sweep goes by, and not for safety."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from everstep.errors import EverstepError
from everstep.repository.repository import Repository
from everstep.store.protocol import Listed

__all__ = ["StoreTime"]


class StoreTime:
    """The newest time that lists have shown, in seconds since 1970: it is at least that late.

    Where that does not tell, an object is made and listed, once, and removed.
    """

    def __init__(self, repo: Repository) -> None:
        self._repo = repo
        self._seen = 0.0
        self._asked = False

    def saw(self, found: Iterable[Listed]) -> Iterator[Listed]:
        """The same entries, their times noted."""
        for one in found:
            self._seen = max(self._seen, one.modified)
            yield one

    def surely_passed(self, since: float, seconds: float) -> bool:
        """Whether so much time has passed by what was seen; no request."""
        return seconds <= 0 or self._seen - since >= seconds

    def passed(self, since: float, seconds: float) -> bool:
        """Whether so much time has passed; three requests at most, the first time that it is not plain."""
        if not self.surely_passed(since, seconds) and not self._asked:
            self._asked = True
            self._ask()
        return self.surely_passed(since, seconds)

    def _ask(self) -> None:
        prefix = f"probes/{self._repo.entropy(8)}/"
        try:
            self._repo.store.create(f"{prefix}now", b"{}")
            for _ in self.saw(self._repo.store.list(prefix)):
                pass
            self._repo.store.delete(f"{prefix}now")
        except EverstepError:
            return  # it is later than was seen, and who may not write goes by that
