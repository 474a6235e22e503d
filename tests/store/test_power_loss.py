"""Fault 3: power fails at any system call of the local store. All states the disk may be in are enumerated."""

from pathlib import Path

import pytest

from everstep.errors import AlreadyExists
from everstep.store.keys import RESERVED
from everstep.store.local import LocalStore
from tests.store.crash_states import Recorder, lost_states

BODY = b"D" * 8


class Broken(Exception):
    """A promise that a power loss broke."""


def user(recorder: Recorder, store: LocalStore):
    """A user of the store that remembers what it was told."""

    def create(key: str, body: bytes = BODY) -> None:
        recorder.told("asked", key, body)
        try:
            store.create(key, body)
        except AlreadyExists:
            body = store.get(key, 100)
        recorder.told("created", key, body)

    def delete(key: str) -> None:
        recorder.told("dropping", key)
        store.delete(key)
        recorder.told("deleted", key)

    return create, delete


def check(recorder: Recorder) -> int:
    """Every state keeps every promise; how many states there are."""
    states = 0
    for calls, files, told in lost_states(recorder, RESERVED):
        states += 1
        asked: dict[str, set[bytes]] = {}
        must: dict[str, bytes | None] = {}
        for what, key, body in told:
            if what == "asked":
                asked.setdefault(key, set()).add(body)
                if must.get(key, BODY) is None:
                    del must[key]
            elif what == "dropping":
                must.pop(key, None)
            else:
                must[key] = body if what == "created" else None
        for key, body in must.items():
            if files.get(f"store/{key}") != body:
                raise Broken(
                    f"after {calls} calls: {key} should be {body}, and is {files.get(f'store/{key}')}"
                )
        for path, body in files.items():
            if body not in asked.get(path.removeprefix("store/"), set()):
                raise Broken(f"after {calls} calls: {path} is torn or unasked for: {body}")
    return states


def fresh_store(recorder: Recorder) -> None:
    """A pack, its record in another folder, a record beside it, in a store that does not exist yet."""
    create, _ = user(recorder, LocalStore(recorder.root, calls=recorder))
    create("packs/7f/save/0.safetensors")
    create("commits/1.json", b"C" * 8)
    create("commits/2.json", b"E" * 8)


def deletes(recorder: Recorder) -> None:
    """Objects go, folders empty and come back."""
    create, delete = user(recorder, LocalStore(recorder.root, calls=recorder))
    create("a/b/1")
    create("a/b/2")
    delete("a/b/1")
    delete("a/b/2")
    create("a/b/3")
    delete("a/b/3")
    create("a/b/1", b"again")


@pytest.mark.parametrize("scenario", [fresh_store, deletes])
def test_no_power_loss_breaks_a_promise(tmp_path: Path, scenario):
    """What was acknowledged is there whole, what was deleted is gone, nothing torn is visible: in every state."""
    recorder = Recorder(tmp_path / "store")
    scenario(recorder)
    assert check(recorder) > 40


def test_every_sync_of_a_create_is_needed(tmp_path: Path):
    """Leave out any one sync, of a file or of a folder, and some power loss breaks a promise."""
    whole = Recorder(tmp_path / "store")
    fresh_store(whole)
    assert whole.syncs == 1 + 4 + 3 + 3  # the root's entry, new folders' entries, files, objects' entries
    needless = []
    for n in range(1, whole.syncs + 1):
        (tmp_path / str(n)).mkdir()
        mutant = Recorder(tmp_path / str(n) / "store", drop=frozenset({n}))
        fresh_store(mutant)
        try:
            check(mutant)
        except Broken:
            continue
        needless.append(n)
    assert needless == []


@pytest.mark.parametrize("trusting", [False, True])
def test_folders_another_process_has_not_synced_yet(tmp_path: Path, trusting: bool):
    """A create in a folder that another process made and did not sync yet is durable nevertheless.

    A store that trusts the folders it finds (the mutant) loses the acknowledged object.
    """
    root = tmp_path / "store"
    LocalStore(root).create("x", b"")
    recorder = Recorder(root)
    recorder.told("asked", "x", b"")
    recorder.ops += [("name", 0, "store", 1, "folder"), ("sync", 0)]
    recorder._ids[root.stat().st_ino] = 1
    recorder._ids[(root / RESERVED).stat().st_ino] = 2
    recorder.ops += [("name", 1, RESERVED, 2, "folder")]
    create, _ = user(recorder, LocalStore(root, calls=recorder))
    other, _ = user(recorder, LocalStore(root, calls=recorder))

    def interrupt(n: int) -> None:
        if recorder.ops[-1][4:] == ("folder",) and recorder.ops[-1][2] == "shared":
            recorder.before_sync = lambda _n: None
            if trusting:
                last = recorder.syncs
                recorder.drop = frozenset(
                    {last + 3}
                )  # 1: the root's entry, 2: the file, 3: the folder's entry
            other("shared/theirs", b"B" * 8)

    recorder.before_sync = interrupt
    create("shared/ours")
    if trusting:
        with pytest.raises(Broken, match="shared/theirs should be"):
            check(recorder)
    else:
        check(recorder)


def test_already_exists_is_durable_too(tmp_path: Path):
    """Who is told that an object exists, before its writer has synced the name, may count on it."""
    recorder = Recorder(tmp_path / "store")
    create, _ = user(recorder, LocalStore(recorder.root, calls=recorder))
    other, _ = user(recorder, LocalStore(recorder.root, calls=recorder))
    create("commits/0")

    def interrupt(n: int) -> None:
        if recorder.ops[-1][4:] == ("link",):
            recorder.before_sync = lambda _n: None
            other("commits/1", b"loser")

    recorder.before_sync = interrupt
    create("commits/1", b"winner")
    assert [op[1:] for op in recorder.ops if op[0] == "told" and op[1] == "created"][1:] == [
        ("created", "commits/1", b"winner")
    ] * 2
    check(recorder)


def test_already_exists_after_a_race_is_durable_too(tmp_path: Path):
    """A create that loses to a writer that died before it synced the name syncs it, before it says AlreadyExists."""
    recorder = Recorder(tmp_path / "store")
    create, _ = user(recorder, LocalStore(recorder.root, calls=recorder))
    create("commits/0")

    class Died(BaseException):
        """The other writer's process is gone."""

    def die_linked(n: int) -> None:
        if recorder.ops[-1][4:] == ("link",):
            raise Died

    def race(n: int) -> None:
        recorder.before_sync = die_linked  # the loser is syncing its file: the other one comes first
        recorder.told("asked", "commits/1", b"winner")
        with pytest.raises(Died):
            LocalStore(recorder.root, calls=recorder).create("commits/1", b"winner")
        recorder.before_sync = lambda _n: None

    recorder.before_sync = race
    create("commits/1", b"loser")
    assert recorder.ops[-1] == ("told", "created", "commits/1", b"winner")
    check(recorder)
