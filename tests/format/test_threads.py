"""Structs that many threads read for the first time, at once."""

import subprocess
import sys

SCRIPT = '''
import sys, threading, types
from everstep.format import wire

SOURCE = """
import msgspec
from typing import Any
class Parent(msgspec.Struct, frozen=True, kw_only=True):
    run: str
    save: str
class Summary(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    created: float
    metrics: dict[str, Any] = {}
    forked_from: Parent | None = None
class Record(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    format: int
    summary: Summary | None = None
    why: str = ""
"""
TEXT = b'{"format":1,"summary":{"created":1.5,"metrics":{"a":1},"forked_from":{"run":"x","save":"y"}}}'
sys.setswitchinterval(1e-6)
for n in range(150):
    made = types.ModuleType(f"made{n}")
    sys.modules[made.__name__] = made
    exec(SOURCE, made.__dict__)
    together = threading.Barrier(8)
    def read():
        together.wait()
        found.append(wire._decoder(made.Record).decode(TEXT).summary.forked_from.save)
    found = []
    threads = [threading.Thread(target=read) for _ in range(8)]
    for one in threads: one.start()
    for one in threads: one.join()
    assert found == ["y"] * 8
print("all read")
'''


def test_the_first_readers_of_a_struct_do_not_kill_the_process():
    """Two threads that make a struct's first decoder at once end in a segmentation fault of msgspec."""
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], capture_output=True, text=True, timeout=120, check=False
    )
    assert (done.returncode, done.stdout) == (0, "all read\n"), done.stderr


def test_a_forked_child_reads_a_struct_that_nobody_has_read():
    """No lock is left to a child that another thread of its parent held."""
    script = (
        "import os, threading\n"
        "from everstep.format import wire\n"
        "from everstep.format.records import Parent\n"
        "holding, done = threading.Event(), threading.Event()\n"
        "def hold():\n"
        "    with wire._decoders_lock:\n"
        "        holding.set()\n"
        "        done.wait(0.2)\n"
        "threading.Thread(target=hold).start()\n"
        "holding.wait()\n"
        "child = os.fork()\n"
        'text = b\'{"run":"a","save":"b"}\'\n'
        "assert wire._decoder(Parent).decode(text).save == 'b'\n"
        "if child:\n"
        "    print(os.waitpid(child, 0)[1])\n"
    )
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", script],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "0\n"), done.stderr
