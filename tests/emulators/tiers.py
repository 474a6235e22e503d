"""Moves objects of an emulator between tiers, as a store's lifecycle rule or its owner does."""

import pytest

__all__ = ["archive", "bring_back"]


def archive(request: pytest.FixtureRequest, url: str, key: str, tier: str = "") -> None:
    """Put an object of the store at ``url`` into an archive tier; ``tier`` is the cloud's own word."""
    container, name = _place(url, key)
    if url.startswith("s3:"):
        request.getfixturevalue("moto_server").set_class(container, name, tier or "GLACIER")
    else:
        request.getfixturevalue("azurite").set_tier(container, name, tier or "Archive")


def bring_back(request: pytest.FixtureRequest, url: str, key: str) -> None:
    """Make it readable again; both emulators do it at once."""
    container, name = _place(url, key)
    if url.startswith("s3:"):
        request.getfixturevalue("moto_server").restore(container, name)
    else:
        request.getfixturevalue("azurite").set_tier(container, name, "Hot", "Standard")


def _place(url: str, key: str) -> tuple[str, str]:
    container, _, prefix = url.partition("://")[2].partition("/")
    return container, f"{prefix}/{key}" if prefix else key
