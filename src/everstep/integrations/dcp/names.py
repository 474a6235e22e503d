"""Names of a DCP state dict (``model.layers.0.weight``) and paths of a checkpoint (``model/layers.0.weight``).

DCP flattens nested dicts and lists, and keeps for each name the keys that led there (``planner_data``). These keys
are the components of the path. A name without such keys is one component of its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from everstep.format.paths import join

__all__ = ["Keys", "keys_of", "name_of", "path_of"]

Keys = tuple[str | int, ...]
"""What leads to a leaf: the text of a dict's keys, the indexes of a list."""


def name_of(keys: Keys) -> str:
    """DCP's name of the leaf."""
    return ".".join(map(str, keys))


def path_of(keys: Keys) -> str:
    """The path of the entry."""
    path = ""
    for key in keys:
        path = join(path, key)
    return path


def keys_of(name: str, mappings: Any) -> Keys:
    """The keys that led to a name, when the planner told them (``planner_data``) and they give that name again."""
    found = mappings.get(name) if isinstance(mappings, Mapping) else None
    if isinstance(found, tuple) and found and all(type(key) in (str, int) for key in found):
        keys: Keys = found
        if name_of(keys) == name and type(keys[0]) is str:
            return keys
    return (name,)
