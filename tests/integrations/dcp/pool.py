"""A world of real processes with a gloo process group, that runs functions on all ranks, one after the other."""

from __future__ import annotations

import importlib
import json
import os
import select
import subprocess
import sys
import tempfile
import traceback
from pathlib import Path

__all__ = ["Pool"]

ROOT = Path(__file__).parents[3]
CLEAN = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")


class Pool:
    """``world`` ranks. A function that fails or hangs on one rank ends the world; the next call starts another."""

    def __init__(self, world: int) -> None:
        self.world = world
        self._running: list[subprocess.Popen[bytes]] = []
        self._folder: tempfile.TemporaryDirectory[str] | None = None

    def run(self, function, *args, timeout=60):
        """What ``function(*args)`` of `jobs` gave on each rank; args and answers go as JSON."""
        if not self._running:
            self._start()
        line = json.dumps([function.__module__, function.__name__, args]).encode() + b"\n"
        for process in self._running:
            process.stdin.write(line)
            process.stdin.flush()
        answers = [self._answer(rank, timeout) for rank in range(self.world)]
        failed = {rank: answer["error"] for rank, answer in enumerate(answers) if "error" in answer}
        if failed:
            self.close()
            raise AssertionError("\n".join(f"rank {rank}: {error}" for rank, error in failed.items()))
        return [answer["value"] for answer in answers]

    def close(self) -> None:
        """End the processes."""
        for process in self._running:
            process.kill()
        for process in self._running:
            process.communicate()
        self._running = []
        if self._folder:
            self._folder.cleanup()
            self._folder = None

    def _start(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="everstep-pool-")
        kept = {
            name: value
            for name, value in os.environ.items()
            if name not in CLEAN and not name.startswith(("EVERSTEP_", "TORCHELASTIC_"))
        }
        env = {
            **kept,
            "OMP_NUM_THREADS": "1",
            "GLOO_SOCKET_IFNAME": "lo",
            "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}",
            "MASTER_ADDR": "127.0.0.1",
        }
        self._running = [
            subprocess.Popen(
                [
                    sys.executable,
                    "-m",
                    "tests.integrations.dcp.pool",
                    str(rank),
                    str(self.world),
                    self._folder.name,
                ],
                env=env,
                cwd=ROOT,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
            )
            for rank in range(self.world)
        ]

    def _answer(self, rank: int, timeout: float) -> dict:
        out = self._running[rank].stdout
        ready, _, _ = select.select([out], [], [], timeout)
        line = out.readline() if ready else b""
        return json.loads(line) if line else {"error": "no answer: it hangs or has ended"}


def serve(rank: int, world: int, folder: str) -> None:
    """One rank: functions by name from stdin, what they give to stdout."""
    import torch.distributed as dist

    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what libraries print is no answer
    dist.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=world)
    for line in sys.stdin.buffer:
        module, name, args = json.loads(line)
        try:
            answer = {"value": getattr(importlib.import_module(module), name)(*args)}
        except BaseException:  # noqa: BLE001 - told to the test
            answer = {"error": traceback.format_exc()}
        answers.write(json.dumps(answer).encode() + b"\n")
        answers.flush()
    dist.destroy_process_group()


if __name__ == "__main__":
    serve(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3])
