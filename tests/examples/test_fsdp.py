"""The example of many ranks: trained on four, preempted by a SIGTERM to one, resumed on two."""

import hashlib
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil

import everstep as es
from tests.ranks.processes import torchrun

TRAIN = Path(__file__).parents[2] / "examples" / "fsdp" / "train.py"
BEGINS = re.compile(r"step (\d+): begins with parameters (\w+)")
PATIENCE_S = 150


def workers(launcher):
    """The processes that torchrun started, by rank."""
    started = [each for each in psutil.Process(launcher.pid).children() if str(TRAIN) in each.cmdline()]
    return sorted(started, key=lambda each: int(each.environ()["RANK"]))


def fingerprint(model):
    """As the example has it, of a model that was loaded whole."""
    return hashlib.sha256(b"".join(each.detach().numpy().tobytes() for each in model.values())).hexdigest()[
        :16
    ]


def test_four_ranks_are_preempted_and_two_go_on(tmp_path):
    """A SIGTERM to one of four workers: all exit 75; two resume at the step saved, with the parameters saved."""
    store, said = tmp_path / "store", tmp_path / "said"
    command = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--standalone",
        "--nproc-per-node=4",
        str(TRAIN),
    ]
    more = ["--store", str(store), "--steps", "1000000", "--every", "1000000"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    with (
        said.open("w") as out,
        subprocess.Popen([*command, *more], env=environment, stdout=out, stderr=out) as first,
    ):
        try:
            deadline = time.monotonic() + PATIENCE_S
            while "step 20:" not in said.read_text() and first.poll() is None and time.monotonic() < deadline:
                time.sleep(0.1)
            assert "step 20:" in said.read_text(), said.read_text()
            workers(first)[2].send_signal(signal.SIGTERM)
            first.wait(PATIENCE_S)
        finally:
            for worker in [*workers(first), first] if first.poll() is None else []:
                worker.kill()
    assert said.read_text().count("exitcode  : 75 ") == 4, said.read_text()

    saved = es.Checkpointer(str(store), "fsdp").latest()
    assert saved.step >= 20
    resumed = ["--store", str(store), "--steps", str(saved.step + 1)]
    second = torchrun(str(TRAIN), 2, arguments=resumed, timeout_s=PATIENCE_S)
    assert second.code == 0, second.err
    step, parameters = BEGINS.search(second.err).groups()
    assert int(step) == saved.step
    assert parameters == fingerprint(es.load(str(store), "fsdp", step=saved.step)["model"])
    assert es.Checkpointer(str(store), "fsdp").latest().step == saved.step + 1
