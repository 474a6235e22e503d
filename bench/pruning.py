"""``python -m bench.pruning``: what retention costs, on a local disk: after each commit, and for many checkpoints.

*steady*: seconds and store calls of the prune that a training makes after a commit with ``last 3``, beside those of the
save itself (16 MB, all of it changed), with other runs in the store. *many*: giving up all but three of many small
checkpoints, beside unlinking as many files of the same sizes with a sync of their folders.
"""

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

import everstep as es
from everstep.repository.opening import open_repository
from everstep.retention import parse_keep
from everstep.retention.marking import PackLists
from everstep.retention.prune import plan_prune, prune
from everstep.store.count import Count
from everstep.store.opening import open_store


def changed(state):
    state["w"] += 1


def steady(where, saves, others):
    """Medians over saves, the first ones left out."""
    for number in range(others):
        with es.Checkpointer(where, f"other-{number}") as ckpt:
            ckpt.save(1, {"w": np.zeros(8)}).wait()
    counted = Count(open_store(where))
    repository = open_repository(counted, create=False)
    lists = PackLists(repository)
    policy = parse_keep("last 3")
    state = {"w": np.zeros(2 * 10**6)}
    found = {"save_s": [], "prune_s": [], "save_calls": [], "prune_calls": []}
    with es.Checkpointer(counted, "steady", every=None) as ckpt:
        for step in range(1, saves + 1):
            changed(state)
            calls, began = sum(counted.calls.values()), time.perf_counter()
            ckpt.save(step, state).wait()
            found["save_s"].append(time.perf_counter() - began)
            found["save_calls"].append(sum(counted.calls.values()) - calls)
            calls, began = sum(counted.calls.values()), time.perf_counter()
            plan = plan_prune(
                repository, "steady", policy, now=time.time(), check="light", lists=lists, measure=False
            )
            prune(repository, plan, grace_s=0.0, measure=False, lists=lists)
            found["prune_s"].append(time.perf_counter() - began)
            found["prune_calls"].append(sum(counted.calls.values()) - calls)
    return {name: statistics.median(values[5:]) for name, values in found.items()}


def many(where, checkpoints):
    """One prune of all but three, and the raw removal of as many files."""
    state = {"w": np.zeros(64)}
    with es.Checkpointer(where, "many") as ckpt:
        for step in range(1, checkpoints + 1):
            changed(state)
            ckpt.save(step, state).wait()
    counted = Count(open_store(where))
    repository = open_repository(counted, create=False)
    began = time.perf_counter()
    plan = plan_prune(repository, "many", parse_keep("last 3"), now=time.time(), check="full")
    planned = time.perf_counter() - began
    done = prune(repository, plan, grace_s=0.0)
    took = time.perf_counter() - began
    with tempfile.TemporaryDirectory(dir=Path(where).parent) as raw:
        files = [Path(raw) / f"{number % 256:02x}" / str(number) for number in range(done.objects)]
        for file in files:
            file.parent.mkdir(exist_ok=True)
            file.write_bytes(b"x" * 512)
        os.sync()
        began = time.perf_counter()
        for file in files:
            file.unlink()
            folder = os.open(file.parent, os.O_RDONLY)
            os.fsync(folder)
            os.close(folder)
        raw_s = time.perf_counter() - began
    return {
        "checkpoints": checkpoints,
        "plan_s": planned,
        "prune_s": took,
        "objects": done.objects,
        "raw_s": raw_s,
        "calls": sum(counted.calls.values()),
    }


def main():
    options = argparse.ArgumentParser(prog="python -m bench.pruning", description=__doc__)
    options.add_argument("--quick", action="store_true", help="few checkpoints, to see that it runs")
    options.add_argument(
        "--where", default=None, help="a folder on the disk to measure; default: the temporary one"
    )
    options.add_argument("--json", action="store_true")
    chosen = options.parse_args()
    with tempfile.TemporaryDirectory(dir=chosen.where) as folder:
        one = steady(f"{folder}/steady", 10 if chosen.quick else 40, 3 if chosen.quick else 100)
        all_ = many(f"{folder}/many", 20 if chosen.quick else 1000)
    if chosen.json:
        json.dump({"schema_version": 1, "steady": one, "many": all_}, sys.stdout, indent=2)
        return
    print(
        f"steady  save {one['save_s']:.3f} s, {one['save_calls']:.0f} calls;"
        f" prune {one['prune_s']:.3f} s, {one['prune_calls']:.0f} calls: {one['prune_s'] / one['save_s']:.2f} of a save"
    )
    print(
        f"many    {all_['checkpoints']} checkpoints: chosen in {all_['plan_s']:.2f} s, done in {all_['prune_s']:.2f} s,"
        f" {all_['calls']} calls, {all_['objects']} objects gone; unlinking as many files {all_['raw_s']:.2f} s:"
        f" {all_['prune_s'] / all_['raw_s']:.1f} times"
    )


if __name__ == "__main__":
    main()
