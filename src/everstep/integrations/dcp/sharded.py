"""Tensors of torch.distributed taken apart into what lies on this rank, and put together over a copy of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.distributed import is_available

__all__ = ["parts_of", "with_parts"]


def parts_of(tensor: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """The local tensors of a DTensor or ShardedTensor; of a plain tensor itself."""
    if is_available() and type(tensor) not in (torch.Tensor, torch.nn.Parameter):
        from torch.distributed._shard.sharded_tensor.api import ShardedTensor  # noqa: PLC0415 - slow, seldom needed
        from torch.distributed.tensor import DTensor  # noqa: PLC0415 - as above

        if isinstance(tensor, DTensor):
            return (_plain(tensor.to_local()),)
        if isinstance(tensor, ShardedTensor):
            return tuple(_plain(shard.tensor) for shard in tensor.local_shards())
    return (_plain(tensor),)


def with_parts(tensor: torch.Tensor, parts: Sequence[torch.Tensor]) -> torch.Tensor:
    """The tensor again, over other local tensors, which may be on another device."""
    if is_available() and type(tensor) not in (torch.Tensor, torch.nn.Parameter):
        from torch.distributed._shard.sharded_tensor.api import ShardedTensor  # noqa: PLC0415 - as above
        from torch.distributed._shard.sharded_tensor.shard import Shard  # noqa: PLC0415 - as above
        from torch.distributed.tensor import DTensor  # noqa: PLC0415 - as above

        if isinstance(tensor, DTensor):
            kind: Any = DTensor
            # from_local would move it to the mesh's device
            made: torch.Tensor = kind(parts[0], tensor._spec, requires_grad=False)  # noqa: SLF001
            return made
        if isinstance(tensor, ShardedTensor):
            sharded: Any = tensor
            shards = [
                Shard(part, shard.metadata) for part, shard in zip(parts, sharded.local_shards(), strict=True)
            ]
            again: torch.Tensor = ShardedTensor._init_from_local_shards_and_global_metadata(  # noqa: SLF001 - the way without a collective; FSDP uses it
                shards,
                sharded.metadata(),
                process_group=sharded._process_group,  # noqa: SLF001
            )
            return again
    return parts[0]


def _plain(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().resolve_conj().resolve_neg()
