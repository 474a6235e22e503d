"""Depth is found without recursion."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from everstep.format.nesting import nested_too_deep, too_many_nodes

trees = st.recursive(
    st.none() | st.text(st.characters() | st.sampled_from('"\\[]{}'), max_size=6),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text('"\\[]{}a', max_size=3), inner, max_size=3)
    ),
    max_leaves=20,
)


def depth(tree):
    """How deep a tree is nested, by recursion."""
    if isinstance(tree, dict):
        return 1 + max(map(depth, tree.values()), default=0)
    return 1 + max(map(depth, tree), default=0) if isinstance(tree, list) else 0


@given(trees, st.booleans())
def test_it_agrees_with_a_recursive_count(tree, ascii_only):
    """Brackets, quotes and backslashes in strings do not confuse it."""
    text = json.dumps(tree, ensure_ascii=ascii_only).encode()
    assert not nested_too_deep(text, depth(tree))
    assert depth(tree) == 0 or nested_too_deep(text, depth(tree) - 1)


@pytest.mark.parametrize(
    "text", [b"[" * 10**6, b"[" * 10**6 + b"]" * 10**6, b'{"a":' * 10**6, b"][", b"]", b"[[]"]
)
def test_deep_and_unmatched_brackets_are_refused(text):
    """A million brackets neither crash nor pass."""
    assert nested_too_deep(text, 300)


def test_values_are_counted_from_above():
    """The bound on values never lets more through."""
    assert too_many_nodes(b"[1,2,3]", 2)
    assert not too_many_nodes(b"[1,2,3]", 3)
