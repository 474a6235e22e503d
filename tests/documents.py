"""Every code block of the README and of docs/ is a test.

Python blocks of a page share their names. ``sh`` blocks run in a real shell; what they export stays for the
blocks that follow. ``console`` blocks show what is typed after ``$`` and the whole answer, in which ``...``
stands for anything. All blocks of a page run in one empty folder. Commands of ``make`` are only checked to
exist: a page that tests itself would not end.
"""

import doctest
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from sybil import Sybil
from sybil.parsers.markdown import CodeBlockParser, PythonCodeBlockParser, SkipParser

__all__ = ["blocks_of"]

ROOT = Path(__file__).parents[1]
ENVIRONMENT = "the environment before this page"
FOLDER = "the folder before this page"
PAGE = "the folder of this page"
PROGRESS = re.compile(r"\w+: .+ of .+ \(\d+ %\)")


def blocks_of(*patterns: str):
    """The hook by which pytest collects the pages."""
    parsers = [
        PythonCodeBlockParser(),
        CodeBlockParser("sh", _shell),
        CodeBlockParser("console", _console),
        SkipParser(),
    ]
    sybil = Sybil(parsers, patterns=list(patterns), path=str(ROOT), setup=_arrive, teardown=_leave)
    return sybil.pytest()


def _arrive(namespace: dict) -> None:
    namespace[ENVIRONMENT] = dict(os.environ)
    namespace[FOLDER] = Path.cwd()
    os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    os.environ["COLUMNS"] = "120"
    namespace[PAGE] = tempfile.TemporaryDirectory(prefix="everstep-page-")
    os.chdir(namespace[PAGE].name)


def _leave(namespace: dict) -> None:
    if PAGE not in namespace:
        return  # it never arrived
    os.chdir(namespace[FOLDER])
    os.environ.clear()
    os.environ.update(namespace[ENVIRONMENT])
    # its own folder by name, never "where we are": that may be anywhere after a page that failed
    namespace.pop(PAGE).cleanup()


def _shell(example) -> str | None:
    commands = [line for line in example.parsed.splitlines() if line and not line.startswith("#")]
    if all(line.startswith("make ") for line in commands):
        return _fault(_run(["make", "--dry-run", *_targets(commands)], folder=ROOT))
    with tempfile.NamedTemporaryFile() as exported:
        # `diff` and `verify` answer with 10 when they found something: that is no fault of the page
        checked = "set -Euo pipefail; trap 'code=$?; ((code == 10)) || exit $code' ERR"
        script = f"{checked}\n{example.parsed}\nenv -0 >{exported.name}\n"
        done = _run(["bash", "-c", script])
        kept = Path(exported.name).read_text().split("\0")
    os.environ.update(line.split("=", 1) for line in kept if line.startswith("EVERSTEP_"))
    return _fault(done)


def _console(example) -> str | None:
    checker = doctest.OutputChecker()
    for shown in f"\n{example.parsed}".split("\n$ ")[1:]:
        command, _, answer = shown.partition("\n")
        done = _run(["bash", "-c", command])
        if answer.strip():
            # a terminal wipes progress away when it is done; elsewhere it stays, as lines
            lines = [line for line in done.stdout.splitlines() if not PROGRESS.fullmatch(line)]
            if not checker.check_output(_trimmed(answer), _trimmed("\n".join(lines)), doctest.ELLIPSIS):
                return f"$ {command}\nanswered\n{done.stdout}\nand the page says\n{answer}"
        elif fault := _fault(done):
            return fault
    return None


def _trimmed(text: str) -> str:
    return "".join(f"{line.rstrip()}\n" for line in text.strip().splitlines())


def _targets(commands: list[str]) -> list[str]:
    return [target for line in commands for target in line.partition("#")[0].split()[1:]]


def _fault(done: subprocess.CompletedProcess[str]) -> str | None:
    return f"exit {done.returncode}\n{done.stdout}" if done.returncode else None


def _run(command: list[str], folder: Path | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command,
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=240,
        check=False,
    )
