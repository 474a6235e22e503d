"""The local store keeps the promises of a store."""

import subprocess
import sys

import pytest

from everstep.store.local import LocalStore
from tests.store.contract import StoreContract


class TestLocalStore(StoreContract):
    many = 10_001

    @pytest.fixture
    def store(self, tmp_path):
        return LocalStore(tmp_path / "store")


RACE = """
import sys
from pathlib import Path
from everstep.errors import AlreadyExists
from everstep.store.local import LocalStore
store, me, won = LocalStore(Path(sys.argv[1])), sys.argv[2], 0
for n in range(100):
    try:
        store.create(f"race/{n:02d}/k", me.encode() * 1000)
        won += 1
    except AlreadyExists:
        pass
print(won)
"""


def test_one_of_many_processes_wins(tmp_path):
    """Of processes that create the same keys at once exactly one wins each key, and its bytes stay."""
    command = [sys.executable, "-c", RACE, str(tmp_path / "s")]
    racers = [subprocess.Popen([*command, str(n)], stdout=subprocess.PIPE, text=True) for n in range(4)]
    assert sum(int(racer.communicate(timeout=120)[0]) for racer in racers) == 100
    store = LocalStore(tmp_path / "s")
    bodies = [store.get(entry.key, 1000) for entry in store.list("race/")]
    assert len(bodies) == 100
    assert all(len(body) == 1000 and len(set(body)) == 1 for body in bodies)
