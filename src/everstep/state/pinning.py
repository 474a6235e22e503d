"""Staging memory registered with CUDA, so that copies from a device run at full speed beside the training."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable

__all__ = ["pin"]


def pin(memory: memoryview) -> Callable[[], None] | None:
    """Lock the memory's pages for copies from a device; the result undoes it.

    None where the program has not begun to use CUDA, or where the driver refuses (a limit on locked
    memory): then copies are correct and slower.
    """
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_available() or not torch.cuda.is_initialized():
        return None
    runtime = torch.cuda.cudart()
    address = ctypes.addressof(ctypes.c_ubyte.from_buffer(memory))
    if int(runtime.cudaHostRegister(address, memory.nbytes, 0)) != 0:
        return None

    def unpin() -> None:
        runtime.cudaHostUnregister(address)

    return unpin
