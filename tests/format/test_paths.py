"""Keys become components of paths, and come back."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from everstep.format.paths import component, components, join, parent, path_fault, unescape

any_key = st.text(st.characters(exclude_categories=()) | st.sampled_from("~/.\0\x7f01ex"), max_size=8)


@given(st.lists(any_key, max_size=4))
def test_any_keys_make_a_path_and_come_back(keys):
    """Empty text, dots, slashes, tildes, control characters and lone surrogates included."""
    path = ""
    for key in keys:
        below = join(path, key)
        assert parent(below) == path
        path = below
    assert path_fault(path) == ""
    assert [unescape(part) for part in components(path)] == keys


def test_common_keys_stand_as_they_are():
    """Names of modules and indexes are readable."""
    assert join(join("", "model"), "layers.0.weight") == "model/layers.0.weight"
    assert join("optimizer/state", 3) == "optimizer/state/3"
    assert [component(key) for key in ("", ".", "..", "a/b", "~", "\0")] == [
        "~e",
        "~x002e",
        "~x002e.",
        "a~1b",
        "~0",
        "~x0000",
    ]


@pytest.mark.parametrize(
    "path",
    [
        "/a",
        "a/",
        "a//b",
        "..",
        "a/../b",
        "a/..",
        "./a",
        "a/.",
        "a\0",
        "a~",
        "a~2",
        "a~x00g0",
        "a\nb",
        "\ud800",
        "/",
    ],
)
def test_what_cannot_be_a_path_is_told(path):
    """Absolute, climbing, empty, badly escaped and unprintable paths have a fault."""
    assert path_fault(path)
