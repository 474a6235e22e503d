"""A canary among the secrets of the settings: looked for wherever a process can show something."""

import logging
import os
import signal
import subprocess
import sys
import textwrap
import threading
import traceback
from pathlib import Path
from typing import Self

import pytest

import everstep as es
from everstep.errors import AccessDenied
from everstep.store.retry import Retry
from tests.cli.test_secrets import ENVIRON
from tests.cli.worlds import shell, trained
from tests.emulators.proxy import Answer
from tests.faults.sessions import blank, same, state_at
from tests.store.clouds import SECRET, behind

__all__ = ["behind"]

MARK = "c4n4ry"

DRILLED = """
    import everstep as es
    with es.Checkpointer(every=2) as ckpt:
        state = {"n": 0}
        for step in ckpt.loop(state, until=4):
            state["n"] = step
"""


class ProcessList:
    """What every user of the machine may see of a process and its children, looked at again and again."""

    def __init__(self) -> None:
        self.seen: set[str] = set()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._look)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_exc: object) -> None:
        self._stop.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._stop.wait(0.005):
            for process in Path("/proc").glob("[0-9]*"):
                try:
                    self.seen.add(
                        (process / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                    )
                except OSError:
                    continue


@pytest.mark.skipif(not Path("/proc/self/cmdline").exists(), reason="this system shows no processes as files")
def test_the_process_list_of_a_drill_shows_no_secret(tmp_path):
    """Neither the drill nor the training it starts has the secret among its words, nor in its log (fault 30)."""
    script = tmp_path / "train.py"
    script.write_text(textwrap.dedent(DRILLED))
    with ProcessList() as processes:
        words = ["drill", "--json", "--kills", "1", "--seed", "1", "--", sys.executable, script]
        answer = shell(*words, env=ENVIRON, cwd=tmp_path)
    assert answer.code == 0, answer.err
    assert [words for words in processes.seen if str(script) in words], "the training was never seen"
    assert not [words for words in processes.seen if MARK in words]
    assert MARK not in answer.out + answer.err


VERBS = [
    ["ls"],
    ["show", "digits"],
    ["diff", "digits@10", "digits@20"],
    ["verify"],
    ["fork", "digits@10", "child"],
    ["tag", "best", "digits@10"],
    ["cp", "digits", "--to", "memory://copy"],
    ["export", "digits", "--out", "out.safetensors"],
    ["import", "out.safetensors", "--run", "in", "--step", "0"],
    ["doctor", "--probe-mb", "1"],
    ["ls", "--run", "absent"],
]
CODES = {"absent": 3, "digits@20": 10}


def test_the_json_of_every_command_shows_no_secret(tmp_path):
    """On a store that works, results and errors alike; in the words for people too (fault 30)."""
    store = trained(tmp_path / "store", steps=(10, 20))
    for form in (["--json"], []):
        for words in VERBS:
            answer = shell(*words, *form, "--store", store, env=ENVIRON, cwd=tmp_path)
            if form:
                assert answer.code == CODES.get(words[-1], 0), (words, answer.err)
            assert "Traceback" not in answer.err, (words, answer.err)
            assert MARK not in answer.out + answer.err, words
    for path in tmp_path.rglob("*"):
        assert path.is_dir() or MARK.encode() not in path.read_bytes(), path


TRAINING = """
    import logging, sys, faulthandler, numpy as np, everstep as es
    logging.basicConfig(level=logging.DEBUG)
    ckpt = es.Checkpointer(sys.argv[1], "run")
    ckpt.restore({"w": np.zeros(3)})
"""


@pytest.mark.parametrize("url", ["az://box/x", "s3://box/x", "gs://box/x"])
def test_the_log_and_the_traceback_of_a_training_show_no_secret(url, tmp_path):
    """Everything logged, at every level, and every frame of the interrupt (fault 30)."""
    script = tmp_path / "train.py"
    script.write_text(textwrap.dedent(TRAINING))
    kept = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    with subprocess.Popen(
        [sys.executable, str(script), url],
        env={**kept, **ENVIRON},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=tmp_path,
    ) as process:
        told = process.stderr.readline()
        while "trying again" not in told and (line := process.stderr.readline()):
            told += line
        process.send_signal(signal.SIGINT)
        told += "".join(process.communicate(timeout=60))
    assert "trying again" in told, told
    assert "KeyboardInterrupt" in told, told
    assert MARK not in told


def shown(error: BaseException) -> str:
    """All that a log could show of an error."""
    return "".join(traceback.format_exception(error)) + repr(getattr(error, "fields", "")) + repr(error)


def test_credentials_that_expire_during_a_save(behind, caplog):
    """The save fails with an access error that names the variable, not the secret; older steps stay (fault 19)."""
    caplog.set_level(logging.DEBUG)
    store = behind.store()
    with es.Checkpointer(Retry(store, sleep=lambda _s: None), "run") as ckpt:
        ckpt.save(1, state_at(1)).wait()
        body = f"<Error><Code>ExpiredToken</Code><Message>{SECRET}</Message></Error>".encode()
        asked = len(behind.proxy.asked)
        behind.proxy.script = lambda _asked: Answer(status=403, body=body)
        pending = ckpt.save(2, state_at(2))
        with pytest.raises(AccessDenied) as caught:
            pending.wait()
        assert len(behind.proxy.asked) - asked < 4, "a refusal is not tried again"
        behind.proxy.forget()
        ckpt.save(3, state_at(3)).wait()
        state = blank()
        assert ckpt.restore(state) == 3
        assert same(state, 3)
        assert [one.step for one in ckpt.checkpoints()] == [3, 1]
    name = {"azure": "AZURE_STORAGE_KEY", "s3": "AWS_ACCESS_KEY_ID", "gcs": "GOOGLE_OAUTH_ACCESS_TOKEN"}
    assert name[behind.kind] in caught.value.hint
    assert SECRET not in shown(caught.value) + caplog.text + repr(vars(ckpt))
