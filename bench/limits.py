"""What the machine itself can do: copies into touched memory, direct writes with fsync, raw reads."""

import itertools
import mmap
import os
import statistics
import tempfile
import threading
import time
from pathlib import Path

import numpy as np

from bench.worker import drop_cache

__all__ = ["limits"]

BLOCK = 8 << 20


def touched(size):
    memory = np.frombuffer(mmap.mmap(-1, size), np.uint8)
    memory[:] = 1
    return memory


def in_threads(count, size, work):
    """Seconds for ``work(start, end)`` over equal parts, on so many threads."""
    edges = [size * n // count // BLOCK * BLOCK for n in range(count)] + [size]
    threads = [threading.Thread(target=work, args=part) for part in itertools.pairwise(edges)]
    began = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return time.perf_counter() - began


def limits(where, size, rounds):
    """Medians in seconds for ``size`` bytes."""
    source, target = touched(size), touched(size)

    def copy(start, end):
        np.copyto(target[start:end], source[start:end])

    found = {
        f"copy_{threads}_s": statistics.median(in_threads(threads, size, copy) for _ in range(rounds))
        for threads in (1, 2)
    }
    with tempfile.TemporaryDirectory(dir=where, prefix="bench-") as folder:
        file = Path(folder) / "raw"
        found["write_s"] = statistics.median(_write(file, source) for _ in range(rounds))

        def read(start, end):
            fd = os.open(file, os.O_RDONLY)
            for at in range(start, end, BLOCK):
                os.preadv(fd, [target[at : min(at + BLOCK, end)]], at)
            os.close(fd)

        in_threads(2, size, read)
        found["read_s"] = statistics.median(in_threads(2, size, read) for _ in range(rounds))
        times = []
        for _ in range(rounds):
            drop_cache(folder)
            times.append(in_threads(2, size, read))
        found["cold_read_s"] = statistics.median(times)
    return found


def _write(file, source):
    """Past the page cache in blocks, then fsync; buffered where the file system has no direct writes."""
    file.unlink(missing_ok=True)
    began = time.perf_counter()
    try:
        fd = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_DIRECT, 0o666)
    except OSError:
        fd = os.open(file, os.O_WRONLY | os.O_CREAT, 0o666)
    whole = len(source) // 4096 * 4096
    for at in range(0, whole, BLOCK):
        os.pwrite(fd, source[at : min(at + BLOCK, whole)], at)
    os.fsync(fd)
    os.close(fd)
    return time.perf_counter() - began
