"""Which everstep writes: it stands in the records of stores and runs."""

from __future__ import annotations

__all__ = ["written_by"]


def written_by() -> str:
    """The installed version. Looked up when something is written: reading must start fast."""
    from importlib import metadata  # noqa: PLC0415 - takes 20 ms to import

    return metadata.version("everstep")
