"""Where a cloud store is and how requests to it are signed: what Azure, S3 and GCS come down to."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal
from urllib.parse import unquote

from everstep.errors import UsageError
from everstep.store.endpoints import Endpoint

__all__ = ["Place", "Target", "parse_place"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A container or bucket, and the prefix in it under which the store's keys lie."""

    container: str
    prefix: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """One cloud store, ready to be opened. What signs requests is in ``config``, which is never shown.

    ``credentials`` says by name where they come from. ``fixed``: every request goes to ``endpoint``, none
    to a service that hands out tokens. ``sorted_lists``: the service lists in the order of keys.
    """

    kind: Literal["azure", "s3", "gcs"]
    url: str
    place: Place
    endpoint: Endpoint
    credentials: str
    fixed: bool
    config: Mapping[str, object] = field(repr=False)
    client: Mapping[str, object] = field(default_factory=dict, repr=False)
    provider: Callable[[], Mapping[str, object]] | None = field(default=None, repr=False)
    sorted_lists: bool = True


_PLACE = re.compile(r"[a-z0-9]+://([A-Za-z0-9$][A-Za-z0-9$._-]{0,221})((?:/[A-Za-z0-9._~+=@,-]*)*)", re.ASCII)


def parse_place(url: str) -> Place:
    """The container and prefix of ``scheme://container/prefix``. No part of a wrong address is repeated.

    Raises `UsageError`.
    """
    scheme = url.partition("://")[0]
    found = _PLACE.fullmatch(unquote(url))
    prefix = found[2].strip("/") if found else ""
    parts = prefix.split("/")
    doubled = found is not None and "//" in found[2]
    if (
        found is None
        or doubled
        or (prefix and any(part.strip(".") == "" or part.endswith(".") for part in parts))
    ):
        raise UsageError(
            f"this {scheme}:// address cannot be used: it is not {scheme}://container/prefix",
            hint="names are letters, digits and -._~+=@,; credentials are never part of the address",
        )
    return Place(container=found[1], prefix=prefix)
