"""Why a save is made: a word for programs, and words for people."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Self

__all__ = ["BY_HAND", "Because", "Reason"]


class Reason(StrEnum):
    """The word that stands in the checkpoint's record."""

    BY_HAND = ""
    DUE = "due"
    ASKED = "asked"
    NOTICE = "notice"
    END = "end"


@dataclass(frozen=True, slots=True)
class Because:
    """A reason, and what is behind it."""

    reason: Reason
    words: str

    def text(self) -> str:
        """As ranks tell it each other."""
        return f"{self.reason}: {self.words}"

    @classmethod
    def parse(cls, text: str) -> Self:
        """What `text` gave; other words are a notice."""
        reason, found, words = text.partition(": ")
        if found and reason in {one.value for one in Reason}:
            return cls(Reason(reason), words)
        return cls(Reason.NOTICE, text)


BY_HAND = Because(Reason.BY_HAND, "")
