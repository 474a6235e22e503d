"""A real training process, killed for real: between system calls, and at random moments."""

import os
import random
import re
import shutil
import signal
import subprocess
import sys
import textwrap
import time

import numpy as np
import pytest

import everstep as es

TRAINING = """
    import sys, numpy as np, everstep as es
    state = {"w": np.zeros(400_000), "n": 0}
    with es.Checkpointer(sys.argv[1], "run", listener=lambda event: None) as ckpt:
        done = ckpt.restore(state) or 0
        for step in range(done + 1, done + int(sys.argv[2]) + 1):
            state["w"][:] = step
            state["n"] = step
            ckpt.save(step, state).wait()
            print(step, flush=True)
"""


def training(tmp_path):
    """The script, and the store it saves to."""
    script = tmp_path / "train.py"
    script.write_text(textwrap.dedent(TRAINING))
    return script, tmp_path / "store"


def whole(store, acknowledged):
    """What is left restores bit for bit, and is no older than what was acknowledged. Gives its step."""
    state = {"w": np.full(400_000, -1.0), "n": -1}
    with es.Checkpointer(str(store), "run", on_corrupt="fail") as ckpt:
        step = ckpt.restore(state) or 0
    assert step >= acknowledged
    if step:
        assert state["n"] == step
        assert (state["w"] == step).all()
    return step


@pytest.mark.parametrize("seed", range(3))
def test_kill_9_at_random_moments(tmp_path, seed):
    """Killed again and again while it saves without pause: each time the newest acknowledged step is there."""
    script, store = training(tmp_path)
    dice = random.Random(seed)
    reached = 0
    for _ in range(4):
        process = subprocess.Popen([sys.executable, script, store, "1000"], stdout=subprocess.PIPE, text=True)
        acknowledged = int(process.stdout.readline())
        time.sleep(dice.random() * 0.2)
        os.kill(process.pid, signal.SIGKILL)
        told = process.stdout.read().split()
        process.wait()
        process.stdout.close()
        acknowledged = int(told[-1]) if told else acknowledged
        assert acknowledged > reached
        reached = whole(store, acknowledged)


CALLS = "openat,pwrite64,write,fsync,link,linkat,unlink,unlinkat,mkdir,mkdirat,rename,renameat2,ftruncate,fallocate"


def traced(script, store, *options):
    """The training's one further step under strace; gives its output and trace."""
    trace = store.with_name("trace")
    done = subprocess.run(
        ["strace", "-f", "-qq", "-y", "-o", trace, *options, sys.executable, script, store, "1"],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    return done, trace.read_text()


def strace_works():
    """Whether this machine lets a process be traced."""
    if shutil.which("strace") is None:
        return False
    return subprocess.run(["strace", "-qq", "true"], capture_output=True, check=False).returncode == 0


@pytest.mark.skipif(not strace_works(), reason="strace is not installed, or tracing is not allowed here")
@pytest.mark.parametrize("part", ["some", pytest.param("all", marks=pytest.mark.more)])
def test_kill_9_at_system_calls_of_a_save(tmp_path, part):
    """A real SIGKILL at the n-th system call that touches the store: what was acknowledged restores.

    ``make test`` takes every ninth call, ``make test-more`` every one.
    """
    script, store = training(tmp_path)
    subprocess.run([sys.executable, script, store, "2"], check=True, capture_output=True)
    before = tmp_path / "before"
    shutil.copytree(store, before)
    done, trace = traced(script, store, "-e", f"trace={CALLS}")
    assert done.returncode == 0, done.stderr
    places = places_in(trace, store)
    assert len(places) > 20
    for name, nth in places[:: 9 if part == "some" else 1]:
        shutil.rmtree(store)
        shutil.copytree(before, store)
        done, _ = traced(script, store, "-e", f"trace={name}", "-e", f"inject={name}:signal=KILL:when={nth}")
        acknowledged = int(done.stdout) if done.stdout.strip() else 2
        whole(store, acknowledged)


def places_in(trace, store):
    """(system call, how manieth of its name) of each call that names the store, in order."""
    counts, places = {}, []
    for line in trace.splitlines():
        found = re.match(r"\d+ +(\w+)\(", line)
        if found:
            counts[found[1]] = counts.get(found[1], 0) + 1
            if str(store) in line:
                places.append((found[1], counts[found[1]]))
    return places
