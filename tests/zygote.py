"""A process that has torch loaded and forks ranks on demand: hundreds of launches in the time of a few."""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import traceback
from dataclasses import dataclass
from pathlib import Path
from typing import Self

__all__ = ["Ended", "Zygote", "rendezvous"]

_ROOT = Path(__file__).parents[1]


def rendezvous() -> tuple[str, int]:
    """An address that no one listens at."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """How a rank ended: its exit code (negative: a signal; None: it hung and was killed), what it told, what it printed."""

    code: int | None
    told: list[object]
    printed: str


class Zygote:
    """Starts ranks: each a forked process that calls ``module:function(*args, tell=...)`` with RANK and WORLD_SIZE set."""

    def __enter__(self) -> Self:
        self._folder = tempfile.TemporaryDirectory(prefix="everstep-zygote-")
        clean = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("EVERSTEP_", "TORCHELASTIC_", "SLURM_", "OMPI_"))
        }
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.zygote"],
            cwd=_ROOT,
            env={**clean, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        return self

    def __exit__(self, *_exc: object) -> None:
        self._process.kill()
        self._process.communicate()
        self._folder.cleanup()

    def run(
        self, function: str, *args: object, world: int, timeout_s: float = 60, **environment: str
    ) -> list[Ended]:
        """Launch ``world`` ranks and wait for all."""
        with tempfile.TemporaryDirectory(dir=self._folder.name) as place:
            order = {
                "function": function,
                "args": args,
                "world": world,
                "timeout_s": timeout_s,
                "environment": environment,
                "place": place,
            }
            assert self._process.stdin is not None
            assert self._process.stdout is not None
            self._process.stdin.write(json.dumps(order) + "\n")
            self._process.stdin.flush()
            codes = json.loads(self._process.stdout.readline())
            return [
                Ended(
                    code=code,
                    told=[json.loads(line) for line in _text(Path(place) / f"{rank}.told").splitlines()],
                    printed=_text(Path(place) / f"{rank}.printed"),
                )
                for rank, code in enumerate(codes)
            ]


def _text(path: Path) -> str:
    return path.read_text(errors="replace") if path.exists() else ""


def _serve() -> None:
    import torch
    import torch.distributed.fsdp
    import torch.distributed.tensor  # noqa: F401

    import everstep.checkpointer.conductor  # noqa: F401

    for line in sys.stdin:
        order = json.loads(line)
        importlib.import_module(order["function"].partition(":")[0])  # once for all ranks
        children = [_start(order, rank) for rank in range(order["world"])]
        print(json.dumps(_wait(children, order["timeout_s"])), flush=True)  # noqa: T201


def _start(order: dict, rank: int) -> int:
    child = os.fork()
    if child:
        return child
    code = 70
    place = Path(order["place"])
    with (place / f"{rank}.printed").open("w") as printed, (place / f"{rank}.told").open("w") as told:
        try:
            os.dup2(printed.fileno(), 1)
            os.dup2(printed.fileno(), 2)
            os.environ |= {"RANK": str(rank), "WORLD_SIZE": str(order["world"]), **order["environment"]}
            module, name = order["function"].split(":")

            def tell(value: object) -> None:
                told.write(json.dumps(value) + "\n")
                told.flush()

            getattr(importlib.import_module(module), name)(*order["args"], tell=tell)
            code = 0
        except SystemExit as error:
            code = error.code if isinstance(error.code, int) else 1
        except BaseException:  # noqa: BLE001 - shown to the one who asked
            traceback.print_exc()
            code = 1
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)


def _wait(children: list[int], timeout_s: float) -> list[int | None]:
    until = time.monotonic() + timeout_s
    codes: dict[int, int | None] = {}
    while len(codes) < len(children):
        for child in children:
            if child in codes:
                continue
            ended, status = os.waitpid(child, os.WNOHANG)
            if ended:
                codes[child] = os.waitstatus_to_exitcode(status)
            elif time.monotonic() > until:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(child, signal.SIGKILL)
                os.waitpid(child, 0)
                codes[child] = None
        time.sleep(0.005)
    return [codes[child] for child in children]


if __name__ == "__main__":
    _serve()
