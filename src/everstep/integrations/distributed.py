"""Folders of torch.distributed.checkpoint, in and out; here so that torch is needed only when one is met."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from everstep.errors import UsageError
from everstep.integrations.exported import Exported

if TYPE_CHECKING:
    from everstep.state.flat import Flat
    from everstep.transfer.contents import Contents

__all__ = ["export_distributed", "is_distributed", "read_distributed"]


def is_distributed(folder: Path) -> bool:
    """Whether ``dcp.save`` wrote the folder."""
    return any(folder.glob(".metadata")) or any(folder.glob("__*.metadata"))


def read_distributed(folder: Path) -> Flat:
    """What the folder holds. Raises what `dcp.importing.read_dcp` raises, `UsageError` without torch."""
    if not any(folder.glob(".metadata")):
        raise UsageError(
            f"{folder} holds what each rank saved for itself (use_collectives=False), and no whole",
            hint="load it with dcp.load where it was saved, and save it again with everstep's StorageWriter",
            path=str(folder),
        )
    flat: Flat = _room("importing", str(folder)).read_dcp(folder)
    return flat


def export_distributed(
    contents: Contents, out: Path, *, select: Sequence[str] = (), skip: Sequence[str] = ()
) -> Exported:
    """Write the folder ``out``. Raises what `dcp.exporting.export_dcp` raises, `UsageError` without torch."""
    done: Exported = _room("exporting", "--format dcp").export_dcp(contents, out, select=select, skip=skip)
    return done


def _room(name: str, what: str) -> Any:
    try:
        return importlib.import_module(f"everstep.integrations.dcp.{name}")
    except ImportError:
        raise UsageError(f"{what} needs torch", hint="install everstep[torch]") from None
