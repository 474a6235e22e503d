"""Stores to ask about, and the ways to ask: in this process, and as a user's shell does."""

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import everstep as es
from everstep.cli.entry import run

__all__ = ["Answer", "Shell", "ask", "shell", "state_at", "trained"]


@dataclass(frozen=True)
class Answer:
    """What a command answered."""

    code: int
    out: str
    err: str

    @property
    def json(self):
        """The document on stdout."""
        return json.loads(self.out)


def ask(capsys, *words) -> Answer:
    """The command in this process."""
    capsys.readouterr()
    code = run([str(word) for word in words])
    out, err = capsys.readouterr()
    return Answer(code, out, err)


def shell(*words, env=None, **options) -> Answer:
    """The command as a process of its own, with nothing in its environment but what is given."""
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "TMPDIR") if name in os.environ}
    done = subprocess.run(
        [str(Path(sys.executable).parent / "everstep"), *map(str, words)],
        capture_output=True,
        text=True,
        env={**kept, **(env or {})},
        timeout=120,
        check=False,
        **options,
    )
    return Answer(done.returncode, done.stdout, done.stderr)


Shell = shell


def state_at(step):
    """A small state: weights that change with the step, an embedding that never does, plain values."""
    rng = np.random.default_rng(7)
    return {
        "model": {
            "embed.weight": rng.standard_normal((256, 16)).astype(np.float32),
            "head.weight": (rng.standard_normal((16, 4)) + step).astype(np.float32),
            "head.bias": np.full(4, np.nan if step == 30 else step, np.float32),
        },
        "epoch": step // 10,
        "lr": 0.1 / (1 + step),
        "name": "digits",
    }


def trained(folder, run_name="digits", steps=(10, 20, 30), config=None) -> str:
    """A local store with one run that has a checkpoint at each step; gives its address."""
    with es.Checkpointer(str(folder), run_name, config=config or {"batch": 32}) as ckpt:
        for step in steps:
            ckpt.save(step, state_at(step), metrics={"loss": 1 / step}).wait()
    return str(folder)
