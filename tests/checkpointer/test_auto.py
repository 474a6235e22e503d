"""``every="auto"`` in a real loop: measured, decided, written down, and learnt from earlier launches."""

import os
import signal
import time

import pytest
import torch

import everstep as es
from everstep.cadence import Auto, auto
from everstep.cadence.history import lives
from everstep.events import CadenceDecided
from everstep.format.values import decode
from everstep.repository.catalogue import checkpoints, newest
from everstep.repository.opening import open_repository
from everstep.repository.reading import read_manifest
from everstep.store.memory import MemoryStore


@pytest.fixture(autouse=True)
def _soon(monkeypatch):
    """The first save comes after 0.1 s instead of a minute."""
    monkeypatch.setattr(auto, "_FIRST_S", 0.1)


def train(store, *, steps=120, every=None, stop_at=None):
    """Steps of 5 ms. What was told."""
    told = []
    state = {"w": torch.zeros(1000)}
    cadence = Auto(at_least=0.2) if every is None else every
    with es.Checkpointer(store, "r", every=cadence, listener=told.append) as ckpt:
        for step in ckpt.loop(state, until=steps):
            time.sleep(0.005)
            state["w"] += 1
            if step == stop_at:
                os.kill(os.getpid(), signal.SIGTERM)
    return told


def test_it_saves_early_measures_and_writes_down_what_it_decides():
    """The first save is early; what it cost gives the interval; the next checkpoint tells of the decision."""
    store = MemoryStore()
    told = train(store)
    decided = [event for event in told if isinstance(event, CadenceDecided)]
    assert decided
    repository = open_repository(store, create=False)
    saved = checkpoints(repository, "r")
    assert saved[0].reason == "end"
    assert {one.reason for one in saved[1:]} == {"due"}
    assert saved[-1].step < 40, "the first was early"
    metas = [read_manifest(repository, one).meta for one in saved]
    whys = [decode(meta.cadence)["why"] for meta in metas]
    assert "auto" in whys[-1]
    decisions = [decision for meta in metas for decision in decode(meta.cadence)["decisions"]]
    assert [decision["why"] for decision in reversed(decisions)] == [event.why for event in decided]
    assert all(decision["figures"] for decision in decisions)


def test_what_saves_cost_is_known_to_the_next_launch():
    """It needs no early save to measure: its first decision comes with its first step."""
    store = MemoryStore()
    train(store)
    told = train(store, steps=125)
    decided = [event for event in told if isinstance(event, CadenceDecided)]
    assert decided[0].from_s == 0
    assert "first measurement" in decided[0].why
    assert [one.step for one in checkpoints(open_repository(store, create=False), "r")][:2] == [125, 120]


def test_launches_that_ended_are_learnt_from():
    """A launch that was told to stop, one that ran on: the next one knows both, and how it is itself."""
    store = MemoryStore()
    with pytest.raises(SystemExit):
        train(store, stop_at=50)
    train(store)
    repository = open_repository(store, create=False)
    assert [life.ended for life in lives(repository, "r", current=3)] == ["noticed", "finished"]
    assert newest(repository, "r").step == 120
