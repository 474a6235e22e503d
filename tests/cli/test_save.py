"""``everstep save``: a training in a process of its own is asked for a save, through the store."""

import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

import everstep as es
from tests.cli.worlds import ask, shell, state_at, trained

TRAINING = """
    import sys, time, numpy as np, everstep as es
    state = {"w": np.zeros(10_000), "n": 0}
    with es.Checkpointer(sys.argv[1], "live", keep="last 100", listener=lambda event: None) as ckpt:
        for step in ckpt.loop(state, until=int(sys.argv[2])):
            state["w"][:] = state["n"] = step + 1
            print(step + 1, flush=True)
            time.sleep(0.01)
"""


class Live:
    """A training that runs, and is killed at the end."""

    def __init__(self, folder, until=1_000_000):
        self.store = str(folder / "store")
        self.script = folder / "train.py"
        self.script.write_text(textwrap.dedent(TRAINING))
        self.until = until

    def __enter__(self):
        self.process = subprocess.Popen(
            [sys.executable, self.script, self.store, str(self.until)],
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "EVERSTEP_WATCH": "0.1s"},
        )
        assert self.process.stdout.readline()
        return self

    def __exit__(self, *_exc):
        self.process.kill()
        self.process.communicate()

    @property
    def reached(self):
        """A step that it has done."""
        return int(self.process.stdout.readline())

    def requests(self):
        """Files of requests and answers."""
        return sorted(path.name for path in Path(self.store).glob("runs/live/requests/*"))

    def whole(self, step):
        """The checkpoint's bytes are that step's."""
        found = es.load(self.store, "live", step=step)
        return found["n"] == step and (found["w"] == step).all()

    def reasons(self):
        """Every checkpoint's step and reason."""
        with es.Checkpointer(self.store, "live") as ckpt:
            return {one.step: one.reason for one in ckpt.checkpoints()}


@pytest.fixture(scope="module")
def live(tmp_path_factory):
    """One training for the tests that do not end it."""
    with Live(tmp_path_factory.mktemp("live")) as running:
        yield running


def test_it_waits_until_it_is_a_checkpoint_and_shows_it(live, capsys):
    """The step is one that was done after the question; nothing is left of the request; words are on stderr."""
    answer = ask(capsys, "save", "live", "--store", live.store, "--tag", "before-the-change")
    assert answer.code == 0, answer.err
    first, *lines = answer.out.splitlines()
    run, step = first.split("@")
    assert run == "live"
    assert live.whole(int(step))
    assert [line.split()[0] for line in lines] == ["created", "state", "tags"]
    assert "asked attempt 1" in answer.err
    assert live.requests() == []
    assert "everstep tag" not in answer.err
    again = ask(capsys, "save", "--run", "live", "--store", live.store, "--json").json
    assert again["checkpoint"]["step"] > int(step)
    assert again["checkpoint"]["reason"] == "asked"
    assert again["waited_s"] > 0
    tagged = ask(capsys, "show", "tag:before-the-change", "--store", live.store, "--json").json
    assert tagged["checkpoint"]["step"] == int(step)


def test_what_a_policy_may_give_up_is_said(live, capsys):
    """Who asked for a checkpoint and did not name it learns how to keep it."""
    answer = ask(capsys, "save", "live", "--store", live.store)
    assert f"keeps last 100; to keep this one: everstep tag NAME {answer.out.splitlines()[0]}" in answer.err


def test_two_people_ask_at_once(live):
    """Both get a checkpoint that was begun after they asked, whether it is one for both or two."""
    command = [str(Path(sys.executable).parent / "everstep"), "save", "live", "--store", live.store]
    both = [
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for _ in range(2)
    ]
    steps = []
    for one in both:
        out, err = one.communicate(timeout=60)
        assert one.returncode == 0, err
        steps.append(int(out.splitlines()[0].split("@")[1]))
    reasons = live.reasons()
    assert all(reasons[step] == "asked" for step in steps)
    assert live.requests() == []


def test_it_need_not_wait(live, capsys):
    """The training answers in its own time; the answer stays until somebody tidies."""
    answer = ask(capsys, "save", "live", "--store", live.store, "--no-wait", "--json")
    assert answer.code == 0
    request = answer.json["request"]
    end = time.monotonic() + 20
    while f"{request}.answer.json" not in live.requests():
        assert time.monotonic() < end
        time.sleep(0.02)


def test_a_training_that_does_not_answer(live, capsys):
    """It stands still: exit 5, who was asked, what to look at; the request is gone and is not served later."""
    before, requests = set(live.reasons()), live.requests()
    live.process.send_signal(signal.SIGSTOP)
    try:
        answer = ask(capsys, "save", "live", "--store", live.store, "--timeout", "1s", "--json")
    finally:
        live.process.send_signal(signal.SIGCONT)
    assert answer.code == 5
    error = answer.json["error"]
    assert error["code"] == "E-TRY-AGAIN"
    assert f":{live.process.pid}" in error["message"]
    assert "EVERSTEP_WATCH" in error["hint"]
    assert live.requests() == requests
    time.sleep(0.3)
    assert set(live.reasons()) == before


def test_ctrl_c_takes_the_request_back(live):
    """Who does not wait any more leaves no work behind."""
    live.process.send_signal(signal.SIGSTOP)
    try:
        before = live.requests()
        command = [str(Path(sys.executable).parent / "everstep"), "save", "live", "--store", live.store]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as asking:
            end = time.monotonic() + 30
            while live.requests() == before:
                assert time.monotonic() < end
                time.sleep(0.02)
            asking.send_signal(signal.SIGINT)
            out, err = asking.communicate(timeout=30)
        assert asking.returncode == 130, err
        assert out == ""
        assert live.requests() == before
    finally:
        live.process.send_signal(signal.SIGCONT)


def test_the_next_launch_serves_what_the_one_before_could_not(tmp_path, capsys):
    """Killed before it heard of the request: it waits in the store, and is served as soon as the run goes on."""
    with Live(tmp_path) as live:
        pass
    asked = ask(capsys, "save", "live", "--store", live.store, "--no-wait", "--json")
    assert asked.code == 0
    with live:
        answer = ask(capsys, "save", "live", "--store", live.store, "--json")
    assert answer.json["checkpoint"]["attempt"] == 2
    assert f"{asked.json['request']}.answer.json" in live.requests()


def test_a_training_that_has_finished_is_not_waited_for(tmp_path, capsys):
    """Exit 5 at once, with the checkpoint of its end; no request is left."""
    live = Live(tmp_path, until=3)
    with live:
        assert live.process.wait(60) == 0
        answer = ask(capsys, "save", "live", "--store", live.store)
    assert answer.code == 5
    assert "live@3" in answer.err
    assert live.requests() == []


def test_a_training_that_was_told_to_stop_hands_the_request_on(tmp_path, capsys):
    """Nobody runs now, and somebody may soon: that is said at once, and the wait goes on."""
    live = Live(tmp_path)
    with live:
        live.process.send_signal(signal.SIGTERM)
        assert live.process.wait(60) == 75
    answer = ask(capsys, "save", "live", "--store", live.store, "--timeout", "1s")
    assert answer.code == 5
    assert "was told to stop: the next launch is asked too" in answer.err
    assert live.requests() == []


def test_nobody_to_ask(tmp_path, capsys):
    """A misspelt run with the names that are near; a fork that nobody trains; a store that is none."""
    store = trained(tmp_path / "store")
    answer = ask(capsys, "save", "digist", "--store", store)
    assert answer.code == 3
    assert "did you mean digits?" in answer.err
    ask(capsys, "fork", "digits@20", "second", "--store", store)
    answer = ask(capsys, "save", "second", "--store", store)
    assert answer.code == 5
    assert "its newest attempt is a fork" in answer.err
    assert ask(capsys, "save", "digits", "--store", tmp_path / "none").code == 3


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["digits", "--timeout", "soon"], "--timeout 'soon'"),
        (["digits", "--timeout", "10"], "such as 30s"),
        (["digits", "--timeout", "0s"], "--no-wait"),
        (["digits", "--timeout", "-3s"], "--timeout"),
        (["digits", "--tag", "a/b"], "'a/b'"),
        (["digits", "--tag", "taken"], "'taken' names digits"),
        (["digits", "--tag", "new", "--no-wait"], "--no-wait"),
        (["digits@20"], "'digits@20'"),
        ([], "no run is named"),
    ],
)
def test_words_that_are_off(words, said, tmp_path, capsys):
    """Each is named with the correct form, before any training is disturbed."""
    store = trained(tmp_path / "store", steps=(10,))
    ask(capsys, "tag", "taken", "digits@10", "--store", store)
    answer = ask(capsys, "save", *words, "--store", store)
    assert answer.code == (1 if "taken" in words else 2)
    assert said in answer.err
    assert not list(Path(store).glob("runs/*/requests/*"))


def test_a_by_hand_training_hears_nothing(tmp_path):
    """Requests are heard inside the loop only: the words of the time-out say so."""
    store = trained(tmp_path / "store", steps=(10,))
    with es.Checkpointer(store, "digits") as ckpt:
        ckpt.save(20, state_at(20)).wait()
        answer = shell("save", "digits", "--store", store, "--timeout", "1s")
    assert answer.code == 5
    assert "ckpt.loop" in answer.err
