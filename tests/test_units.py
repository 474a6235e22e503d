"""Durations and sizes as people write them."""

import pytest

from everstep.units import parse_bytes, parse_seconds


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("30s", 30),
        ("10m", 600),
        ("1.5 h", 5400),
        ("2d", 172800),
        ("1w", 604800),
        ("1h 30m", 5400),
        ("5MIN", 300),
    ],
)
def test_durations(text, seconds):
    """Each unit, parts of it, several together."""
    assert parse_seconds(text) == seconds


@pytest.mark.parametrize("text", ["", "30", "-3s", "10 q", "s", "1h30", "1e3s", "3 sx"])
def test_no_durations(text):
    """What is none shows how to write one."""
    with pytest.raises(ValueError, match="30s, 10m"):
        parse_seconds(text)


@pytest.mark.parametrize(
    ("text", "count"),
    [("512", 512), ("1.5GB", 1_500_000_000), ("256 MiB", 2**28), ("2tb", 2 * 10**12), ("7b", 7)],
)
def test_sizes(text, count):
    """Decimal and binary units, in any case."""
    assert parse_bytes(text) == count


@pytest.mark.parametrize("text", ["", "GB", "-1GB", "1 XB", "1.5.2GB", "1e9"])
def test_no_sizes(text):
    """What is none shows how to write one."""
    with pytest.raises(ValueError, match=r"1\.5GB"):
        parse_bytes(text)
