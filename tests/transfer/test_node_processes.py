"""Four processes of one node restore a replica from one store: read once in all, also when one is killed."""

import json
import multiprocessing
import os
import signal
from pathlib import Path

import msgspec
import numpy as np

from everstep.format.box import Box
from everstep.format.index import Index
from everstep.plan import plan_load
from everstep.ranks.identity import Identity
from everstep.ranks.ranks import Ranks
from everstep.ranks.store_exchange import StoreExchange
from everstep.store.count import Count
from everstep.store.local import LocalStore
from everstep.transfer.download import download
from everstep.transfer.node import on_node
from tests.transfer import made

WORLD = 4
MIB = 2**20
TOTAL = 64 * MIB


class Killing:
    """A store that kills its process at the nth range."""

    def __init__(self, inner, after):
        self._inner, self._after = inner, after

    def __getattr__(self, name):
        return getattr(self._inner, name)

    def get_range(self, key, start, into):
        self._after -= 1
        if self._after < 0:
            os.kill(os.getpid(), signal.SIGKILL)
        self._inner.get_range(key, start, into)


def contents(n):
    """The bytes of a tensor: no two chunks alike, so that nothing is stored once for two."""
    return np.random.default_rng(n).integers(0, 255, 4 * MIB, np.uint8)


def restore(rank, folder, where, kill_after, budget):
    """One rank: join the others, read, compare, and write down what the store was asked for."""
    index = msgspec.json.decode((folder / "index.json").read_bytes(), type=Index)
    counted = Count(LocalStore(folder / "store"))
    store = Killing(counted, kill_after) if kill_after is not None else counted
    wanted = tuple(
        made.Wanted(
            path=f"w{n}", dtype="uint8", box=Box.whole((4 * MIB,)), nbytes=4 * MIB,
            target=made.ArrayTarget(4 * MIB),
        )
        for n in range(TOTAL // (4 * MIB))
    )  # fmt: skip
    exchange = StoreExchange(LocalStore(folder / "exchange"), run="run", launch="one", poll_s=0.01)
    ranks = Ranks(exchange, Identity(rank=rank, world=WORLD), patience_s=60.0)
    with on_node(ranks, store, topic="restore/1", where=where, budget_bytes=budget) as node:
        used = str(node._folder.path)
        with node.share(plan_load(wanted, [index])) as (reads_from, reads):
            download(reads_from, reads, wanted, run="run", step=7, workers=2)
    right = all(np.array_equal(w.target.bytes, contents(n)) for n, w in enumerate(wanted))
    done = {"right": bool(right), "bytes": counted.bytes_out, "folder": used}
    (folder / f"done.{rank}").write_text(json.dumps(done))


def run(tmp_path, *, where, kill=None, budget=2**30):
    """Four processes; what each that ended wrote down, by rank."""
    store = LocalStore(tmp_path / "store")
    flat = made.flat_of({f"w{n}": contents(n) for n in range(TOTAL // (4 * MIB))})
    saved = made.save(store, flat, stage_options={"chunk_bytes": MIB, "pack_bytes": 16 * MIB})
    index = msgspec.structs.replace(saved.index, entries=())
    (tmp_path / "index.json").write_bytes(msgspec.json.encode(index))
    spawn = multiprocessing.get_context("spawn")
    processes = [
        spawn.Process(target=restore, args=(rank, tmp_path, where, (kill or {}).get(rank), budget))
        for rank in range(WORLD)
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join(120)
    assert [process.exitcode for process in processes] == [
        -signal.SIGKILL if rank in (kill or {}) else 0 for rank in range(WORLD)
    ]
    return {
        rank: json.loads((tmp_path / f"done.{rank}").read_text())
        for rank in range(WORLD)
        if rank not in (kill or {})
    }


def test_sixty_four_mebibytes_once(tmp_path):
    """All ranks together read the state once from the store, each about a quarter; nothing stays in memory."""
    where = tmp_path / "where"
    where.mkdir()
    done = run(tmp_path, where=where)
    stored = sum(found["bytes"] for found in done.values())
    assert all(found["right"] for found in done.values())
    assert TOTAL <= stored <= TOTAL * 1.05
    assert max(found["bytes"] for found in done.values()) <= TOTAL // 2
    assert list(where.iterdir()) == []


def test_a_fetcher_is_killed(tmp_path):
    """``kill -9`` of a rank in the middle: the others have all their bytes, and nothing stays in memory."""
    where = tmp_path / "where"
    where.mkdir()
    done = run(tmp_path, where=where, kill={2: 1})
    assert sorted(done) == [0, 1, 3]
    assert all(found["right"] for found in done.values())
    assert list(where.iterdir()) == []


def test_memory_is_where_it_goes(tmp_path):
    """By default the folder is one in shared memory or a temporary one, the same for all; it is gone afterwards."""
    done = run(tmp_path, where=None, budget=8 * MIB)
    assert all(found["right"] for found in done.values())
    (folder,) = {found["folder"] for found in done.values()}
    assert not Path(folder).exists()
