"""What a topic may be, and the keys made of it."""

from __future__ import annotations

import re

from everstep.errors import InvalidName

__all__ = ["family_of", "key_part"]

_TOPIC = re.compile(r"[A-Za-z0-9-][A-Za-z0-9.-]*(?:/[A-Za-z0-9-][A-Za-z0-9.-]*)*")


def family_of(topic: str) -> str:
    """What stands before the first slash. Raises `InvalidName` for what cannot be a topic."""
    if (
        not _TOPIC.fullmatch(topic)
        or ".." in topic
        or topic.endswith(".")
        or "./" in topic
        or len(topic) > 200
    ):
        raise InvalidName(
            f"{topic!r} cannot be a topic between ranks",
            hint="topics are parts of letters, digits, '-' and '.', joined by '/'",
            topic=topic,
        )
    return topic.partition("/")[0]


def key_part(topic: str) -> str:
    """The topic as one part of a key."""
    return topic.replace("/", "_")
