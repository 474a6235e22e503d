"""A storage for `torch.distributed.checkpoint`: ``dcp.save``, ``async_save`` and ``load`` on a store of everstep."""

from __future__ import annotations

from everstep.integrations.dcp.reader import StorageReader
from everstep.integrations.dcp.stager import Stager
from everstep.integrations.dcp.writer import StorageWriter

__all__ = ["Stager", "StorageReader", "StorageWriter"]
