"""Real processes for tests: Python programs as ranks of a world, each with its own output."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

__all__ = ["Ended", "python", "run_ranks", "torchrun"]

_CLEAN = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
_PREFIXES = ("TORCHELASTIC_", "SLURM_", "OMPI_", "EVERSTEP_")


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """How a process ended."""

    code: int
    out: str
    err: str


def _environment(more: Mapping[str, str]) -> dict[str, str]:
    clean = {
        name: value
        for name, value in os.environ.items()
        if name not in _CLEAN and not name.startswith(_PREFIXES)
    }
    return {**clean, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo", **more}


@contextmanager
def python(program: str, **environment: str) -> Iterator[subprocess.Popen[str]]:
    """A running program; killed at the end of the block if it still runs."""
    process = subprocess.Popen(
        [sys.executable, "-c", program],
        env=_environment(environment),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with process:
        try:
            yield process
        finally:
            process.kill()


def run_ranks(program: str, world: int, *, timeout_s: float = 90, **environment: str) -> list[Ended]:
    """Run a program as ranks 0 to ``world`` - 1, which it finds in RANK_ and WORLD_; how each ended."""
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", program],
            env=_environment({**environment, "RANK_": str(rank), "WORLD_": str(world)}),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(world)
    ]
    try:
        ended = [(process, *process.communicate(timeout=timeout_s)) for process in processes]
    finally:
        for process in processes:
            process.kill()
            process.wait()
    return [Ended(code=process.returncode, out=out, err=err) for process, out, err in ended]


def torchrun(
    program: str,
    world: int,
    *more: str,
    arguments: Sequence[str] = (),
    timeout_s: float = 120,
    **environment: str,
) -> Ended:
    """Run a program (a path) under torchrun on a free port; ``more`` goes to torchrun, ``arguments`` to the program."""
    command = (sys.executable, "-m", "torch.distributed.run", "--nnodes=1", f"--nproc-per-node={world}")
    rendezvous = ("--rdzv-backend=c10d", "--rdzv-endpoint=localhost:0", *more)
    ended = subprocess.run(
        [*command, *rendezvous, program, *arguments],
        env=_environment(environment),
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )
    return Ended(code=ended.returncode, out=ended.stdout, err=ended.stderr)
