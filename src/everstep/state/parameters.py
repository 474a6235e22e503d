"""A model's table of parameters and buffers: made, compared, and filled with weights."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from everstep.errors import RestoreMismatch, UnsupportedLeaf, UsageError
from everstep.format.dtypes import ITEM_BYTES
from everstep.format.entries import Alias, Tensor
from everstep.format.paths import join, unescape
from everstep.state.flattening import Flattening
from everstep.state.kinds import known
from everstep.state.objects import Stateful, hand_over
from everstep.state.saved import tree

__all__ = ["give_weights", "parameter_table", "refuse_other_table", "totals"]

Row = Mapping[str, Any]


def parameter_table(model: object) -> list[dict[str, Any]]:
    """One row for each array of the model: name, shape, dtype, count, parameter or buffer, trainable, tied to.

    A model whose state everstep does not know, of another framework, has an empty table.
    """
    into = Flattening(known().live, rank=0)
    try:
        into.visit({"model": model}, "")
    except UnsupportedLeaf:
        return []
    entries = into.done().entries
    root = tree(entries)
    rows = []
    for entry in entries:
        if not isinstance(entry, Tensor | Alias):
            continue
        place = root.everything[entry.path].place()
        base = place.base
        rows.append(
            {
                "name": unescape(entry.path.partition("/")[2]),
                "shape": list(place.shape),
                "dtype": base.dtype,
                "count": math.prod(place.shape),
                "kind": "parameter" if base.extra.get("parameter") else "buffer",
                "trainable": bool(base.extra.get("requires_grad")),
                "tied": unescape(base.path.partition("/")[2]) if isinstance(entry, Alias) else "",
            }
        )
    return rows


def totals(rows: Sequence[Row]) -> dict[str, int]:
    """Counts over a table; what is tied counts once."""
    own = [row for row in rows if not row["tied"]]
    parameters = [row for row in own if row["kind"] == "parameter"]
    return {
        "parameters": sum(row["count"] for row in parameters),
        "trainable": sum(row["count"] for row in parameters if row["trainable"]),
        "buffers": sum(row["count"] for row in own if row["kind"] == "buffer"),
        "bytes": sum(row["count"] * ITEM_BYTES[row["dtype"]] for row in own),
    }


def refuse_other_table(recorded: Sequence[Row], built: Sequence[Row]) -> None:
    """Raise `RestoreMismatch` when names or shapes differ; a model's dtype is set when weights are given."""
    was = {row["name"]: list(row["shape"]) for row in recorded}
    now = {row["name"]: list(row["shape"]) for row in built}
    problems = [f"{name} is recorded and not built" for name in was if name not in now]
    problems += [f"{name} is built and not recorded" for name in now if name not in was]
    problems += [
        f"{name} has shape {now[name]} built and {shape} recorded"
        for name, shape in was.items()
        if name in now and now[name] != shape
    ]
    if problems and was:
        raise RestoreMismatch(
            "the built model has other parameters than the recorded one:\n  " + "\n  ".join(problems[:20]),
            hint="the code changed, or the arguments given to Architecture.of are not those the model was built with",
            problems=problems,
        )


def give_weights(model: Any, state: object, rows: Sequence[Row], at: str | None) -> None:
    """Load the model's part of an assembled state. Raises `UsageError` when it is not clear which part that is."""
    if not isinstance(model, Stateful):
        raise UsageError(
            f"the built model, a {type(model).__qualname__}, has no load_state_dict",
            hint="load the state without a template and put its weights in yourself",
        )
    names = {row["name"] for row in rows}
    parts = {path: part for path, part in _parts(state, "") if names <= part.keys()}
    if at is None:
        at = "model" if "model" in parts else next(iter(parts), "") if len(parts) == 1 else None
    if at is None or at not in parts:
        found = ", ".join(repr(path) for path in parts) or "none"
        raise UsageError(
            f"it is not clear which part of the state is the model; parts with its parameters: {found}",
            hint="pass at=, the path of the model's part",
        )
    _set_dtypes(model, rows)
    hand_over(model, parts[at], at)


def _parts(state: object, path: str) -> Iterator[tuple[str, Mapping[Any, Any]]]:
    if not isinstance(state, Mapping):
        return
    yield path, state
    for key, value in state.items():
        yield from _parts(value, join(path, key))


def _set_dtypes(model: Any, rows: Sequence[Row]) -> None:
    """Give a built torch model the recorded dtypes, so that loading casts nothing."""
    torch = sys.modules.get("torch")
    if torch is None or not isinstance(model, torch.nn.Module):
        return
    dtypes = {row["name"]: row["dtype"] for row in rows}
    tensors = [*model.named_parameters(remove_duplicate=False), *model.named_buffers(remove_duplicate=False)]
    for name, tensor in tensors:
        dtype = getattr(torch, dtypes.get(name, ""), tensor.dtype)
        if tensor.dtype != dtype:
            tensor.data = tensor.data.to(dtype)
