"""The real command line on each cloud."""

import json
import shutil
import threading
import time

import numpy as np
import pytest

import everstep as es
from everstep.store.opening import open_store
from tests.clouds.worlds import Cloud, Held, environ_of, everstep, written
from tests.emulators.proxy import Asked
from tests.store.clouds import SECRET


def quiet(_event) -> None:
    """Listens to nothing."""


def trained(url: str) -> dict[str, np.ndarray]:
    """Two checkpoints of a run; the state of the second."""
    state = {"w": np.random.default_rng(1).standard_normal(40_000), "b": np.ones(500)}
    with es.Checkpointer(url, "digits", listener=quiet) as ckpt:
        ckpt.save(10, state, metrics={"loss": 0.5}).wait()
        state["w"] = state["w"] * 2
        ckpt.save(20, state, metrics={"loss": 0.25}).wait()
    return state


def same(url: str, state: dict[str, np.ndarray], run: str = "digits", step: int | None = None) -> bool:
    """Whether a checkpoint loads as this state, bit for bit."""
    loaded = es.load(url, run, step=step, listener=quiet)
    return loaded.keys() == state.keys() and all(
        np.array_equal(np.asarray(loaded[name]), state[name]) for name in state
    )


def test_list_fork_verify_doctor(cloud, tmp_path):
    """`ls --json`, `fork`, `verify` and `doctor` by variables alone; none shows the key."""
    state = trained(cloud.url)
    environ = {**cloud.environ, "EVERSTEP_STORE": cloud.url}

    listed = everstep(environ, tmp_path, "ls", "digits", "--json")
    assert listed.returncode == 0, listed.stderr
    found = json.loads(listed.stdout)["checkpoints"]
    assert [(one["run"], one["step"], one["metrics"]) for one in found] == [
        ("digits", 20, {"loss": 0.25}),
        ("digits", 10, {"loss": 0.5}),
    ]
    assert found[0]["stored_bytes"] >= 320_000

    cloud.proxy.forget()
    forked = everstep(environ, tmp_path, "fork", "digits@20", "warmer")
    assert forked.returncode == 0, forked.stderr
    assert sum(asked.length for asked in cloud.proxy.asked) < 20_000, "a fork copies no bytes"
    assert same(cloud.url, state, "warmer")

    verified = everstep(environ, tmp_path, "verify")
    assert verified.returncode == 0, verified.stdout + verified.stderr

    examined = everstep(environ, tmp_path, "doctor", "--probe-mb", "1", "--json")
    assert examined.returncode == 0, examined.stdout
    assert json.loads(examined.stdout)["healthy"] is True
    for answer in (listed, forked, verified, examined):
        assert not any(
            secret in answer.stdout + answer.stderr
            for name, secret in cloud.environ.items()
            if "KEY" in name or "TOKEN" in name or "CONNECTION" in name
        )


def test_damage_is_found(cloud, tmp_path):
    """A flipped bit in a pack on its way: `verify` answers 10 and names the leaf."""
    from tests.emulators.proxy import Answer, Change, Pass

    trained(cloud.url)

    def flip(answer: Answer) -> Answer:
        body = bytearray(answer.body)
        body[len(body) // 2] ^= 1
        return Answer(status=answer.status, headers=answer.headers, body=bytes(body))

    cloud.proxy.script = lambda asked: (
        Change(flip) if asked.method == "GET" and "packs" in asked.path.partition("?")[0] else Pass()
    )
    found = everstep(
        {**cloud.environ, "EVERSTEP_STORE": cloud.url}, tmp_path, "verify", "digits@20", "--json"
    )
    assert found.returncode == 10, found.stdout + found.stderr
    assert '"w"' in found.stdout


def _killed_copy(cloud: Cloud, tmp_path, source: str, target: str, chosen) -> None:
    """Begins `everstep cp` and kills it while the first request that ``chosen`` names is on its way."""
    import os
    import subprocess
    import sys
    from pathlib import Path

    cloud.proxy.script = held = Held(chosen)
    with subprocess.Popen(
        [Path(sys.executable).with_name("everstep"), "cp", "digits", "--store", source, "--to", target],
        env={**os.environ, **cloud.environ},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=tmp_path,
    ) as process:
        assert held.reached.wait(60), process.stderr.read()
        process.kill()
        process.wait()
    held.let(cut=False)
    cloud.proxy.forget()


class Second:
    """Chooses the second request about packs."""

    def __init__(self, method: str) -> None:
        self._methods = {method} if method == "GET" else {"PUT", "POST"}
        self._seen = 0

    def __call__(self, asked: Asked) -> bool:
        """Whether this is it."""
        if asked.method in self._methods and "packs" in asked.path.partition("?")[0]:
            self._seen += 1
            return self._seen == 2
        return False


def test_copies_to_a_cloud_and_back(cloud, tmp_path):
    """Each way killed while its second pack is on its way, begun again, and equal to the bit at both steps."""
    local, back = tmp_path / "local", tmp_path / "back"
    state = trained(str(local))
    first = es.load(str(local), "digits", step=10, listener=quiet)

    _killed_copy(cloud, tmp_path, str(local), cloud.url, Second("PUT"))
    done = everstep(cloud.environ, tmp_path, "cp", "digits", "--store", str(local), "--to", cloud.url)
    assert done.returncode == 0, done.stderr
    assert same(cloud.url, state)

    _killed_copy(cloud, tmp_path, cloud.url, str(back), Second("GET"))
    done = everstep(cloud.environ, tmp_path, "cp", "digits", "--store", cloud.url, "--to", str(back))
    assert done.returncode == 0, done.stderr
    shutil.rmtree(local)
    assert same(str(back), state)
    assert same(str(back), {name: np.asarray(leaf) for name, leaf in first.items()}, step=10)
    with es.Checkpointer(str(back), "digits", listener=quiet) as ckpt:
        assert [(one.step, dict(one.metrics)) for one in ckpt.checkpoints()] == [
            (20, {"loss": 0.25}),
            (10, {"loss": 0.5}),
        ]


@pytest.mark.parametrize("verb", [("ls",), ("ls", "--json"), ("doctor", "--probe-mb", "1"), ("verify",)])
def test_a_wrong_key_is_exit_code_4(verb, azurite, request, tmp_path):
    """Azurite checks signatures: access denied, and neither the wrong key nor the right one is shown."""
    wrong = "Y2FuYXJ5LW5vdC10aGUta2V5LWNhbmFyeS1ub3QtdGhlLWtleQ=="
    environ = environ_of("azure", azurite.endpoint, request, secret=wrong)
    answer = everstep(environ, tmp_path, *verb, "--store", f"az://{azurite.container()}/team")
    assert answer.returncode == 4, answer.stdout + answer.stderr
    assert wrong not in answer.stdout + answer.stderr
    assert azurite.key not in answer.stdout + answer.stderr
    assert "Traceback" not in answer.stderr


def test_doctor_refuses_a_careless_store(careless_s3, tmp_path):
    """It fails the store by name of the promise, exit 1, and leaves what lies there."""
    environ = {
        "AWS_ACCESS_KEY_ID": careless_s3.access_key,
        "AWS_SECRET_ACCESS_KEY": careless_s3.secret_key,
        "AWS_ENDPOINT_URL": careless_s3.endpoint,
    }
    url = f"s3://{careless_s3.bucket()}/team"
    answer = everstep(environ, tmp_path, "doctor", "--probe-mb", "1", "--json", "--store", url)
    assert answer.returncode == 1, answer.stdout + answer.stderr
    checks = {check["name"]: check for check in json.loads(answer.stdout)["checks"]}
    assert checks["conditional create"]["status"] == "failed"
    assert checks["conditional create"]["code"] == "E-CONDITION-IGNORED"


DRILLED = """
    import random, time, numpy as np, everstep as es
    random.seed(1); np.random.seed(1)
    state = {"w": np.zeros(20_000), "rng": es.PerRank(es.RNG())}
    with es.Checkpointer(every=5) as ckpt:
        for step in ckpt.loop(state, until=30):
            time.sleep(0.02)
            state["w"] += random.random()
            ckpt.log(last=float(state["w"][0]))
"""


def test_a_drill_on_s3(s3, tmp_path):
    """`everstep drill --store s3://...`: two stops each by SIGTERM and kill -9, equal to the bit."""
    import sys

    script = written(tmp_path, DRILLED)
    words = (
        "drill",
        "--store",
        s3.url,
        "--kills",
        "2",
        "--seed",
        "7",
        "--json",
        "--",
        sys.executable,
        script.name,
    )
    done = everstep(s3.environ, tmp_path, *words)
    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads(done.stdout)
    assert report["equal"] is True
    assert SECRET not in done.stdout + done.stderr


def test_a_training_is_asked_for_a_save(cloud, tmp_path, monkeypatch):
    """The one who asks and the training share nothing but the cloud; no request of either is left behind."""
    monkeypatch.setenv("EVERSTEP_WATCH", "0.2s")
    environ = {**cloud.environ, "EVERSTEP_STORE": cloud.url}
    answers = []

    def person():
        answers.append(
            everstep(environ, tmp_path, "save", "digits", "--tag", "asked", "--timeout", "60s", "--json")
        )

    asking = threading.Thread(target=person)
    state = {"n": 0, "w": np.zeros(1000)}
    with es.Checkpointer(cloud.url, "digits", listener=quiet) as ckpt:
        for step in ckpt.loop(state, until=2_000):
            state["n"], state["w"][:] = step + 1, step + 1
            if step == 3:
                asking.start()
            if step > 3 and not asking.is_alive():
                break
            time.sleep(0.02)
    asking.join()
    assert answers[0].returncode == 0, answers[0].stderr
    made = json.loads(answers[0].stdout)["checkpoint"]
    assert made["reason"] == "asked"
    assert made["tags"] == ["asked"]
    step = made["step"]
    assert same(cloud.url, {"n": np.asarray(step), "w": np.full(1000, float(step))}, step=step)
    store = open_store(cloud.url)
    assert list(store.list("runs/digits/requests/")) == []
