"""Registering staging memory with a device."""

import mmap

import pytest
import torch

from everstep.state.pinning import pin


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")
def test_without_a_gpu_there_is_nothing_to_pin():
    """A program that uses no CUDA is told so, and nothing is touched."""
    assert pin(memoryview(mmap.mmap(-1, 4096))) is None


@pytest.mark.skipif(not torch.cuda.is_available(), reason="this machine has no GPU")
def test_with_a_gpu_memory_is_pinned_until_undone():
    """A device's copy into the memory is asynchronous while it is pinned, and the undoing can be repeated by a new pin."""
    torch.cuda.init()
    memory = memoryview(mmap.mmap(-1, 2**21))
    for _ in range(2):
        undo = pin(memory)
        assert undo is not None
        assert torch.frombuffer(memory, dtype=torch.uint8).is_pinned()
        undo()
