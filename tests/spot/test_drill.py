"""The drill, on scripts that survive and on scripts that do not."""

import json
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from everstep.spot.child import anchored

SURVIVES = """
    import random, time, numpy as np, everstep as es
    random.seed(1); np.random.seed(1)
    state = {"w": np.zeros(50_000), "rng": es.PerRank(es.RNG()), "drawn": []}
    with es.Checkpointer(every=5) as ckpt:
        for step in ckpt.loop(state, until=60):
            time.sleep(0.01)
            state["w"] += random.random()
            state["drawn"] = [*state["drawn"], random.random()]
            ckpt.log(last=state["drawn"][-1])
"""
FORGETS = SURVIVES.replace('"rng": es.PerRank(es.RNG()), ', "")


def drill(tmp_path, script, *options):
    """`everstep drill` as a user runs it."""
    path = tmp_path / "train.py"
    path.write_text(textwrap.dedent(script))
    return subprocess.run(
        [
            Path(sys.executable).with_name("everstep"),
            "drill",
            "--seed",
            "7",
            *options,
            "--",
            sys.executable,
            "train.py",
        ],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=250,
        check=False,
    )


def test_a_script_that_saves_everything_ends_equal_to_the_bit(tmp_path):
    """Stopped by SIGTERM and by kill -9, in saves too: exit 0, and the report says what it took."""
    done = drill(tmp_path, SURVIVES, "--kills", "3", "--json")
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["equal"] is True
    undisturbed, terminated, killed = report["scenarios"]
    assert len(undisturbed["attempts"]) == 1
    assert [attempt["exit_code"] for attempt in terminated["attempts"]][:-1] == [75] * (
        len(terminated["attempts"]) - 1
    )
    assert len(terminated["attempts"]) > 1
    assert terminated["steps_lost"] == 0
    assert len(killed["attempts"]) > 1
    assert killed["steps_lost"] < 60
    assert all(scenario["final"]["step"] == 60 for scenario in report["scenarios"])


def test_a_script_that_forgets_its_random_state_is_found_out(tmp_path):
    """What is not saved shows as a difference, by leaf, and as exit code 1: the drill can fail."""
    done = drill(tmp_path, FORGETS, "--kills", "2")
    assert done.returncode == 1, done.stdout
    assert "NOT EQUAL" in done.stdout
    assert "drawn" in done.stdout


@pytest.mark.parametrize(
    ("script", "told"),
    [
        ("raise SystemExit('no data here')", "no data here"),
        ("print('nothing to save')", "EVERSTEP_STORE"),
        ("import everstep as es\nwith es.Checkpointer() as c: c.latest()", "committed no checkpoint"),
    ],
)
def test_a_script_that_cannot_be_drilled_is_told_why(tmp_path, script, told):
    """A script that fails, saves elsewhere or saves nothing ends in words, with what it printed."""
    done = drill(tmp_path, script)
    assert done.returncode == 1
    assert told in done.stderr
    assert "error[E-DRILL]" in done.stderr


LINGERS = """
    import time, everstep as es
    with es.Checkpointer(every=2) as ckpt:
        state = {"n": 0}
        for step in ckpt.loop(state, until=4):
            state["n"] = step
    time.sleep(2)
"""


def test_a_stop_after_the_last_step_is_one_like_any_other(tmp_path):
    """When SIGTERM meets a script that has left its loop, it ends by it; the next launch finds all done."""
    done = drill(tmp_path, LINGERS, "--kills", "1", "--json")
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["equal"] is True
    codes = [attempt["exit_code"] for attempt in report["scenarios"][1]["attempts"]]
    assert codes[0] in {-15, 75}  # 75 on a machine so busy that the loop was still running
    assert codes[1:] == [0]


def test_nothing_is_left_in_the_store(tmp_path):
    """The drill's own stores are deleted at the end."""
    done = drill(tmp_path, SURVIVES, "--kills", "1", "--store", str(tmp_path / "s"))
    assert done.returncode == 0, done.stderr
    assert [path for path in (tmp_path / "s").rglob("*") if path.is_file()] == []


def test_files_in_the_command_are_found_from_any_folder(tmp_path, monkeypatch):
    """The program as a path and its files become absolute; bare program names and other words stay."""
    (tmp_path / "bin").mkdir()
    for name in ("bin/python", "train.py", "python"):
        (tmp_path / name).touch()
    monkeypatch.chdir(tmp_path)
    assert anchored(["bin/python", "train.py", "--lr", "0.1", "none.txt"]) == [
        f"{tmp_path}/bin/python",
        f"{tmp_path}/train.py",
        "--lr",
        "0.1",
        "none.txt",
    ]
    assert anchored(["python", "train.py"]) == ["python", f"{tmp_path}/train.py"]
