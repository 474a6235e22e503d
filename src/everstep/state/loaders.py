"""What torchdata's StatefulDataLoader would answer with a bare assertion, in words."""

from __future__ import annotations

import sys

from everstep.state.saved import Saved

__all__ = ["loader_problem"]


def loader_problem(live: object, saved: Saved) -> str:
    """Why a saved loader's state does not fit a live loader: the number of workers is part of it."""
    torchdata = sys.modules.get("torchdata.stateful_dataloader")
    if torchdata is None or not isinstance(live, torchdata.StatefulDataLoader):
        return ""
    was = _workers(saved)
    if was is None or was == live.num_workers:
        return ""
    return (
        f"was saved with num_workers={was} and the loader in the state has num_workers={live.num_workers}; "
        "its position can only be restored with the same number"
    )


def _workers(saved: Saved) -> int | None:
    if "_num_yielded" in saved.children:
        return 0
    node: Saved | None = saved
    for name in ("_snapshot", "_main_snapshot", "_num_workers"):
        node = node.child(name) if node else None
    value = node.value.value if node and node.value else None
    return value if isinstance(value, int) else None
