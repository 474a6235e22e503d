"""Which everstep writes: it stands in the records of stores and runs."""

from __future__ import annotations

from importlib import metadata

__all__ = ["written_by"]


def written_by() -> str:
    """The installed version. Looked up when something is written: reading must start fast."""
    return metadata.version("everstep")
