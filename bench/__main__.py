"""``python -m bench``: one table, medians of several rounds, ratios to raw limits measured before and after."""

import argparse
import json
import subprocess
import sys
import tempfile

from bench.beside import beside
from bench.contenders import CONTENDERS
from bench.limits import limits
from bench.training import make_training

COLUMNS = (
    ("stall", "stall_s"),
    ("first stall", "first_stall_s"),
    ("durable", "durable_s"),
    ("first durable", "first_durable_s"),
    ("load warm", "load_s"),
    ("load cold", "cold_load_s"),
    ("CPU-s", "cpu_s"),
)


def contender(name, where, rounds, quick):
    """What one contender took, in a process of its own."""
    done = subprocess.run(
        [
            sys.executable,
            "-W",
            "ignore",
            "-m",
            "bench.worker",
            name,
            where,
            str(rounds),
            "quick" if quick else "full",
        ],
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    return json.loads(done.stdout.splitlines()[-1])


def table(found):
    raw = found["limits"]
    print(f"state: {found['bytes'] / 1e9:.3f} GB; medians of {found['rounds']} rounds, in seconds\n")
    print(
        "limits  copy into touched memory: {copy_1_s:.3f} (1 thread), {copy_2_s:.3f} (2 threads)".format(
            **raw
        )
    )
    print("        direct write with fsync: {write_s:.3f}".format(**raw))
    print(
        "        read into touched memory: {read_s:.3f} warm, {cold_read_s:.3f} cold (2 threads)\n".format(
            **raw
        )
    )
    print(f"{'':12}" + "".join(f"{heading:>14}" for heading, _ in COLUMNS) + f"{'peak MB':>9}{'disk GB':>9}")
    for name, one in found["contenders"].items():
        cells = "".join(f"{one[key]:14.3f}" for _, key in COLUMNS)
        print(f"{name:12}{cells}{one['peak_mb']:9.0f}{one['disk_bytes'] / 1e9:9.3f}")
    print("\nratios to the limit: stall to a copy on 2 threads, durable to the write, loads to the reads")
    bounds = {"stall_s": "copy_2_s", "durable_s": "write_s", "load_s": "read_s", "cold_load_s": "cold_read_s"}
    for name, one in found["contenders"].items():
        print(
            f"{name:12}"
            + "".join(f"  {key[:-2]} {one[key] / raw[bound]:.2f}" for key, bound in bounds.items())
        )
    one = found["beside"]
    print(
        f"\na training step of {one['step_s'] * 1e3:.1f} ms on one thread takes {one['flat_ratio']:.3f} times as long "
        f"beside a save flat out ({one['flat_steps']} steps), {one['paced_ratio']:.3f} beside a paced one "
        f"({one['paced_steps']} steps)"
    )


def main():
    options = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    options.add_argument("--quick", action="store_true", help="a state of 47 MB, to see that it runs")
    options.add_argument("--rounds", type=int, default=5)
    options.add_argument(
        "--where", default=None, help="a folder on the disk to measure; default: the temporary one"
    )
    options.add_argument("--only", nargs="*", default=list(CONTENDERS), help="contenders by name")
    options.add_argument("--json", action="store_true")
    chosen = options.parse_args()
    where = chosen.where or tempfile.gettempdir()
    size = make_training(quick=chosen.quick).nbytes
    before = limits(where, size, chosen.rounds)
    contenders = {name: contender(name, where, chosen.rounds, chosen.quick) for name in chosen.only}
    after = limits(where, size, chosen.rounds)
    found = {
        "schema_version": 1,
        "bytes": size,
        "rounds": chosen.rounds,
        "limits": {name: (before[name] + after[name]) / 2 for name in before},
        "contenders": contenders,
        "beside": beside(where, chosen.quick),
    }
    json.dump(found, sys.stdout, indent=2) if chosen.json else table(found)


if __name__ == "__main__":
    main()
