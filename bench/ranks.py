"""``python -m bench.ranks``: a sharded training on four ranks saves, and two ranks load it, against DCP."""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

from bench.rank_worker import CONTENDERS

SAVING, LOADING = 4, 2


def launch(ranks, *words):
    with tempfile.TemporaryDirectory() as folder:
        answer = Path(folder) / "answer.json"
        torchrun = [sys.executable, "-W", "ignore", "-m", "torch.distributed.run", "--standalone"]
        words = ["--nproc-per-node", str(ranks), "-m", "bench.rank_worker", *map(str, words), str(answer)]
        subprocess.run([*torchrun, *words], check=True, stderr=subprocess.DEVNULL)
        return json.loads(answer.read_text())


def table(found):
    size = next(iter(found.values()))["bytes"]
    print(f"state: {size / 1e9:.3f} GB on {SAVING} ranks; seconds of the slowest rank, CPU-s of all\n")
    print(f"{'':12}{'stall':>10}{'first stall':>13}{'durable':>10}{'CPU-s':>9}", end="")
    print(f"{f'load {SAVING}->{LOADING}':>12}{'read/needed':>13}")
    for name, one in found.items():
        print(f"{name:12}{one['stall_s']:10.3f}{one['first_stall_s']:13.3f}{one['durable_s']:10.3f}", end="")
        print(f"{one['cpu_s']:9.2f}{one['load_s']:12.3f}{one['read_bytes'] / size:13.3f}")


def main():
    options = argparse.ArgumentParser(prog="python -m bench.ranks", description=__doc__)
    options.add_argument("--quick", action="store_true", help="a small state, to see that it runs")
    options.add_argument("--rounds", type=int, default=3)
    options.add_argument("--where", default=None, help="a folder on the disk to measure")
    options.add_argument("--only", nargs="*", default=list(CONTENDERS), help="contenders by name")
    options.add_argument("--json", action="store_true")
    chosen = options.parse_args()
    size = "quick" if chosen.quick else "full"
    found = {}
    for name in chosen.only:
        with tempfile.TemporaryDirectory(dir=chosen.where, prefix="bench-") as folder:
            words = (name, folder, chosen.rounds, size)
            found[name] = launch(SAVING, "save", *words) | launch(LOADING, "load", *words)
    if chosen.json:
        json.dump({"schema_version": 1, "contenders": found}, sys.stdout, indent=2)
    else:
        table(found)


if __name__ == "__main__":
    main()
