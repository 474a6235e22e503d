"""A training beside a network and a store that fail."""

import random
import threading
import time

import numpy as np
import pytest

import everstep as es
from everstep.config import settings
from everstep.errors import AccessDenied, ConditionIgnored, SaveFailed, StoreUnavailable
from everstep.events import Retried
from everstep.store.cloud import open_cloud
from everstep.store.retry import TRAINING, Retry
from tests.emulators.proxy import Action, Answer, Asked, CutAnswer, CutRequest, Lose, Pass
from tests.store.clouds import SECRET

SEED = 20261121


def quiet(_event) -> None:
    """Listens to nothing."""


def state_at(step: int) -> dict[str, object]:
    """A state that is another at each step, a megabyte."""
    return {"w": np.random.default_rng(step).standard_normal(120_000), "step": step}


def blank() -> dict[str, object]:
    """The same leaves with other content."""
    return {"w": np.zeros(120_000), "step": -1}


def same(state: dict[str, object], step: int) -> bool:
    """Whether a state is bit for bit that of a step."""
    wanted = state_at(step)
    return np.array_equal(state["w"], wanted["w"]) and state["step"] == step


class Resets:
    """Cuts about one request in five: on the way there, on the way back, or after it took effect."""

    def __init__(self, seed: int) -> None:
        self._dice = random.Random(seed)
        self.cuts = 0

    def __call__(self, asked: Asked) -> Action:
        """As the proxy's script."""
        if self._dice.random() > 0.2:
            return Pass()
        self.cuts += 1
        after = self._dice.randrange(max(1, asked.length))
        return self._dice.choice([CutRequest(after), CutAnswer(self._dice.randrange(100)), Lose()])


def test_a_network_that_resets_at_random(cloud):
    """One request in five is cut, lost answers among them: every save commits and restores to the bit."""
    cloud.proxy.script = resets = Resets(SEED)
    for launch in range(3):
        state = blank()
        with es.Checkpointer(cloud.url, "run", listener=quiet) as ckpt:
            reached = ckpt.restore(state)
            assert reached == (2 * launch or None), f"seed {SEED}"
            assert reached is None or same(state, reached)
            for step in (2 * launch + 1, 2 * launch + 2):
                ckpt.save(step, state_at(step)).wait()
    assert resets.cuts > 10
    with es.Checkpointer(cloud.url, "run", listener=quiet) as ckpt:
        assert [one.step for one in ckpt.checkpoints()] == [6, 5, 4, 3, 2, 1]
        for step in range(1, 7):
            state = blank()
            ckpt.restore(state, step=step)
            assert same(state, step)


def test_the_store_is_away_for_a_while_in_the_middle_of_a_save(cloud):
    """A few seconds of resets once packs are being sent: the save waits, tries again and commits."""
    events: list = []
    away = threading.Event()
    with es.Checkpointer(cloud.url, "run", listener=events.append) as ckpt:
        ckpt.restore(blank())
        back_at = 0.0

        def down(asked: Asked) -> Action:
            nonlocal back_at
            if "packs" in asked.path.partition("?")[0] and not away.is_set():
                away.set()
                back_at = time.monotonic() + 1.5
            return CutRequest(0) if time.monotonic() < back_at else Pass()

        cloud.proxy.script = down
        ckpt.save(1, state_at(1)).wait()
    assert away.is_set()
    assert any(isinstance(event, Retried) for event in events)
    state = blank()
    with es.Checkpointer(cloud.url, "run", listener=quiet) as ckpt:
        assert ckpt.restore(state) == 1
    assert same(state, 1)


def patient(cloud, waits: list[float]) -> Retry:
    """The store as a training opens it, but that its waits are noted instead of slept."""
    return Retry(open_cloud(cloud.url, settings().stores, quiet), TRAINING, waits.append)


@pytest.mark.parametrize("status", [0, 503])
def test_the_store_is_gone_for_good(cloud, status):
    """The save's error is raised at the next step boundary, after a bounded wait; the checkpoint before stands."""
    waits: list[float] = []
    store = patient(cloud, waits)
    done: list[int] = []
    with (
        pytest.raises((SaveFailed, StoreUnavailable)) as caught,
        es.Checkpointer(store, "run", every=2, listener=quiet) as ckpt,
    ):
        state = blank()
        for step in ckpt.loop(state, until=50):
            state.update(state_at(step + 1))
            done.append(step + 1)
            if step + 1 == 3:
                ckpt.wait()
                cloud.proxy.script = lambda _asked: Answer(status=status) if status else CutRequest(0)
            if step + 1 >= 5:
                ckpt._saver._background.settle()  # so that the next boundary is the one that must tell
    assert done == [1, 2, 3, 4, 5]
    assert sum(waits) <= 2 * TRAINING.longest_wait_s(), "the plan is created, then looked for: no more"
    assert len(waits) == 2 * (TRAINING.tries - 1)
    assert SECRET not in str(caught.value)
    assert caught.value.exit_code == 5 or isinstance(caught.value, SaveFailed)
    cloud.proxy.forget()
    state = blank()
    with es.Checkpointer(cloud.url, "run", listener=quiet) as ckpt:
        assert ckpt.restore(state) == 2
    assert same(state, 2)


def test_a_careless_store_loses_nothing(careless_s3, monkeypatch):
    """A store that ignores the condition is refused at first use, and what lay there still does."""
    import boto3

    for name, value in {
        "AWS_ACCESS_KEY_ID": careless_s3.access_key,
        "AWS_SECRET_ACCESS_KEY": careless_s3.secret_key,
        "AWS_ENDPOINT_URL": careless_s3.endpoint,
    }.items():
        monkeypatch.setenv(name, value)
    bucket = careless_s3.bucket()
    client = boto3.client("s3", region_name=careless_s3.region)
    client.put_object(Bucket=bucket, Key="team/theirs", Body=b"kept")
    with pytest.raises(ConditionIgnored):
        es.Checkpointer(f"s3://{bucket}/team", "run", listener=quiet)
    found = [one["Key"] for one in client.list_objects_v2(Bucket=bucket)["Contents"]]
    assert found == ["team/theirs"]
    assert client.get_object(Bucket=bucket, Key="team/theirs")["Body"].read() == b"kept"
    client.close()


def test_a_wrong_key_is_access_denied(cloud, monkeypatch):
    """At once, without trying again, and the key is not repeated; a server that checks keys, or a proxy that does."""
    cloud.proxy.script = lambda _asked: Answer(status=403, body=b"<Error><Code>AccessDenied</Code></Error>")
    with pytest.raises(AccessDenied) as caught:
        es.Checkpointer(cloud.url, "run", listener=quiet)
    assert caught.value.exit_code == 4
    assert SECRET not in f"{caught.value!r} {caught.value} {caught.value.fields}"
    assert len(cloud.proxy.asked) == 1


def test_a_training_is_more_patient_than_a_command(s3):
    """The store that a Checkpointer opens from a URL waits as `TRAINING` says."""
    with es.Checkpointer(s3.url, "run", listener=quiet) as ckpt:
        assert ckpt._launch.repository.store._policy is TRAINING
    assert 60 < TRAINING.longest_wait_s() / 2 < 120, (
        "shorter than a notice of two minutes, longer than a blip"
    )
