"""One contender in a process of its own: saves, loads, and what they took, as JSON on stdout."""

import json
import os
import resource
import statistics
import sys
import tempfile
import time
from pathlib import Path

from bench.contenders import CONTENDERS
from bench.training import make_training

__all__ = ["main"]


def cpu_s():
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def memory_mb(field):
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(field))
    return int(line.split()[1]) / 1024


def drop_cache(folder):
    """Ask the kernel to forget the files' pages."""
    for path in Path(folder).rglob("*"):
        if path.is_file():
            fd = os.open(path, os.O_RDONLY)
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(fd)


def disk_bytes(folder):
    return sum(path.stat().st_blocks * 512 for path in Path(folder).rglob("*") if path.is_file())


def main(name, where, rounds, quick):
    training = make_training(quick=quick)
    with tempfile.TemporaryDirectory(dir=where, prefix="bench-") as folder:
        before = memory_mb("VmRSS")
        began = time.perf_counter()
        contender = CONTENDERS[name](training, folder)
        ready = time.perf_counter() - began
        time.sleep(0 if quick else 3)  # a training's first steps
        stalls, durables, cpus = [], [], []
        for number in range(1, rounds + 2):
            training.change()
            used, began = cpu_s(), time.perf_counter()
            pending = contender.save(number)
            stalls.append(time.perf_counter() - began)
            contender.finish(pending)
            durables.append(time.perf_counter() - began)
            cpus.append(cpu_s() - used)
            if number == 1:
                disk = disk_bytes(folder)
            elif number <= rounds:
                contender.forget(number)
        last = rounds + 1
        peak = memory_mb("VmHWM") - before
        loads, cold = [], []
        for times, forget in ((loads, False), (cold, True)):
            for _ in range(rounds):
                if forget:
                    drop_cache(folder)
                began = time.perf_counter()
                contender.load(last)
                times.append(time.perf_counter() - began)
        json.dump(
            {
                "bytes": training.nbytes,
                "ready_s": ready,
                "first_stall_s": stalls[0],
                "first_durable_s": durables[0],
                "stall_s": statistics.median(stalls[1:]),
                "durable_s": statistics.median(durables[1:]),
                "cpu_s": statistics.median(cpus[1:]),
                "peak_mb": peak,
                "disk_bytes": disk,
                "load_s": statistics.median(loads),
                "cold_load_s": statistics.median(cold),
            },
            sys.stdout,
        )
        sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4] == "quick")
