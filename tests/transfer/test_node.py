"""Ranks of one node that read for each other: each byte leaves the store once, whatever becomes of the others."""

import threading
import time
from contextlib import contextmanager

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from everstep.errors import StoreUnavailable
from everstep.plan import plan_load
from everstep.ranks.identity import Identity
from everstep.ranks.local_exchange import LocalExchange
from everstep.ranks.ranks import Ranks
from everstep.store.count import Count
from everstep.store.memory import MemoryStore
from everstep.transfer.download import download
from everstep.transfer.folder import Folder, make_folder, open_folder
from everstep.transfer.node import on_node
from tests.transfer import made

MIB = 2**20


def a_state(tensors=6, elements=50_000):
    """Tensors large and small, chunked small so that there are many chunks."""
    rng = np.random.default_rng(0)
    state = {f"w{n}": rng.integers(0, 255, elements, np.uint8) for n in range(tensors)}
    return state | {f"bias{n}": rng.integers(0, 255, 300 + n, np.uint8) for n in range(tensors)}


def stored(state, chunk_bytes=16 * 2**10, pack_bytes=128 * 2**10):
    """A store with the state in it, its entries and its index."""
    store, flat = MemoryStore(), made.flat_of(state)
    saved = made.save(store, flat, stage_options={"chunk_bytes": chunk_bytes, "pack_bytes": pack_bytes})
    store.create("object", b"m" * 5000)
    return store, flat, saved.index


class Rank:
    """One rank of a node on a thread: what it read, and how that ended."""

    def __init__(
        self, rank, world, exchange, store, flat, index, *, chosen=None, inside=None, late=False, **options
    ):
        self.store = Count(store)
        self.error = None
        self.wanted = made.wanted_of(flat, boxes=chosen)
        self._node = Ranks(exchange, Identity(rank=rank, world=world), patience_s=20.0)
        self._index, self._inside, self._options, self._late = index, inside, options, late
        self.thread = threading.Thread(target=self._run)
        self.thread.start()

    def _run(self):
        try:
            if self._late:  # it says where it is, and no more
                assert self._node.local_ranks
                return
            with on_node(self._node, self.store, topic="restore/1", **self._options) as node:
                self.object = node.store.get("object", 10_000)
                if self._inside:
                    self._inside()
                with node.share(plan_load(self.wanted, [self._index])) as (store, reads):
                    download(store, reads, self.wanted, run="run", step=7, workers=2)
                self.object = node.store.get("object", 10_000)  # left: the store itself answers
        except Exception as error:  # noqa: BLE001 - the test asks for it
            self.error = error

    def done(self):
        """Wait for its end."""
        self.thread.join(60)
        assert not self.thread.is_alive()
        return self

    def right(self, state):
        """Whether every wanted box has its bytes."""
        return all(
            w.target.bytes.tobytes()
            == np.asarray(state[w.path])[w.box.offsets[0] : w.box.offsets[0] + w.box.sizes[0]].tobytes()
            for w in self.wanted
        )


@contextmanager
def nothing_left(folder):
    """Inside, folders may come; at the end they must be gone."""
    yield
    assert list(folder.iterdir()) == []


def together(world, given, folder, *, stores=None, each=None, **options):
    """All ranks of one node at once."""
    store, flat, index = given
    exchange = LocalExchange(poll_s=0.002)
    with nothing_left(folder):
        ranks = [
            Rank(
                rank,
                world,
                exchange,
                (stores or {}).get(rank, store),
                flat,
                index,
                **({"where": folder} | options | (each or {}).get(rank, {})),
            )
            for rank in range(world)
        ]
        return [rank.done() for rank in ranks]


def test_a_replica_is_read_once(tmp_path):
    """Three ranks that want the same: every byte and the object are asked for once in all."""
    state = a_state()
    given = stored(state)
    ranks = together(3, given, tmp_path)
    assert [rank.error for rank in ranks] == [None] * 3
    assert all(rank.right(state) for rank in ranks)
    assert all(rank.object == b"m" * 5000 for rank in ranks)
    total = sum(np.asarray(array).nbytes for array in state.values())
    assert sum(rank.store.bytes_out for rank in ranks) == total + 4 * 5000
    assert sum(rank.store.calls["get"] for rank in ranks) == 1 + 3
    assert max(rank.store.bytes_out for rank in ranks) < total / 2


@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_any_choice(tmp_path_factory, data):
    """Whatever each rank wants and however small the budget: the right bytes, none twice where there is room."""
    state = a_state(3, 20_000)
    given = stored(state, chunk_bytes=data.draw(st.sampled_from([1000, 16 * 2**10])))
    world = data.draw(st.integers(2, 3))
    names = st.lists(st.sampled_from(sorted(state)), unique=True)
    budget = data.draw(st.sampled_from([0, 5000, 100_000, 2**30]))
    each = {}
    for rank in range(world):
        each[rank] = {"chosen": []}
        for path in data.draw(names):
            start = data.draw(st.integers(0, len(state[path]) - 1))
            size = data.draw(st.sampled_from([1, len(state[path])]))
            box = made.Box((start,), (min(size, len(state[path]) - start),))
            each[rank]["chosen"].append((path, box))
    ranks = together(world, given, tmp_path_factory.mktemp("node"), budget_bytes=budget, each=each)
    assert [rank.error for rank in ranks] == [None] * world
    assert all(rank.right(state) for rank in ranks)
    if budget == 2**30:
        asked = set()
        for rank in ranks:
            reads = plan_load(rank.wanted, [given[2]], max_gap=0)
            asked |= {(r.key, c.chunk.offset, c.chunk.length) for r in reads for c in r.chunks}
        needed = sum(length for _, _, length in asked) + 5000 * (1 + world)
        assert sum(rank.store.bytes_out for rank in ranks) <= needed * 1.05


def test_a_small_budget_still_shares(tmp_path):
    """With room for a tenth of the state nearly all of it is still read once, round by round."""
    state = a_state(20)
    given = stored(state)
    ranks = together(2, given, tmp_path, budget_bytes=128 * 2**10)
    assert all(rank.right(state) for rank in ranks)
    total = sum(np.asarray(array).nbytes for array in state.values())
    assert sum(rank.store.bytes_out for rank in ranks) <= total * 1.05 + 15_000


def test_a_rank_with_an_error(tmp_path):
    """One rank stops before it tells its reads: the others do without it, and the folder goes."""

    def stop():
        raise ValueError("no such leaf")

    state = a_state()
    ranks = together(3, stored(state), tmp_path, each={1: {"inside": stop}})
    assert [type(rank.error) for rank in ranks] == [type(None), ValueError, type(None)]
    assert ranks[0].right(state)
    assert ranks[2].right(state)


def test_the_first_rank_with_an_error(tmp_path):
    """The rank that would decide stops: the others read for themselves."""

    def stop():
        raise ValueError("no such leaf")

    state = a_state()
    ranks = together(3, stored(state), tmp_path, each={0: {"inside": stop}})
    assert isinstance(ranks[0].error, ValueError)
    assert ranks[1].right(state)
    assert ranks[2].right(state)


class Failing:
    """A store that stops answering ranges after some, slowly or with an error."""

    def __init__(self, inner, after, *, delay=0.0):
        self._inner, self._after, self._delay = inner, after, delay

    def __getattr__(self, name):
        return getattr(self._inner, name)

    def get_range(self, key, start, into):
        self._after -= 1
        if self._after < 0:
            if not self._delay:
                raise StoreUnavailable("the network of this rank is gone", key=key)
            time.sleep(self._delay)
        self._inner.get_range(key, start, into)


def test_a_fetcher_that_fails(tmp_path):
    """A rank whose store fails in the middle ends with its error; the others fetch what it would have."""
    state = a_state(20)
    given = stored(state)
    ranks = together(3, given, tmp_path, stores={1: Failing(given[0], 1)})
    assert isinstance(ranks[1].error, StoreUnavailable)
    assert ranks[0].right(state)
    assert ranks[2].right(state)


def test_a_fetcher_that_is_slow(tmp_path):
    """A rank that takes longer than patience is not waited for again and again."""
    state = a_state(20)
    given = stored(state)
    ranks = together(2, given, tmp_path, stores={1: Failing(given[0], 1, delay=0.4)}, patience_s=0.3)
    assert [rank.error for rank in ranks] == [None, None]
    assert all(rank.right(state) for rank in ranks)
    assert ranks[0].store.bytes_out > ranks[1].store.bytes_out


class Flipping:
    """A store whose first answer for each range has a wrong bit: damaged on the way."""

    def __init__(self, inner):
        self._inner, self._seen = inner, set()

    def __getattr__(self, name):
        return getattr(self._inner, name)

    def get_range(self, key, start, into):
        self._inner.get_range(key, start, into)
        if (key, start) not in self._seen:
            self._seen.add((key, start))
            into[0] ^= 1


@pytest.mark.parametrize(("elements", "chunk_bytes"), [(50_000, 16 * 2**10), (3 * MIB, 300 * 2**10)])
def test_bytes_damaged_on_the_way_of_one(tmp_path, elements, chunk_bytes):
    """What a rank hands on is verified by each that takes it; wrong bytes are read again from the store."""
    state = a_state(2, elements)
    given = stored(state, chunk_bytes=chunk_bytes, pack_bytes=8 * chunk_bytes)
    ranks = together(2, given, tmp_path, stores={0: Flipping(given[0])})
    assert [rank.error for rank in ranks] == [None, None]
    assert all(rank.right(state) for rank in ranks)


def test_no_place_for_a_folder(tmp_path):
    """Where the first rank cannot make a folder, each reads for itself."""
    state = a_state(2)
    ranks = together(2, stored(state), tmp_path, where=tmp_path / "gone")
    assert [rank.error for rank in ranks] == [None, None]
    assert all(rank.right(state) for rank in ranks)


def test_a_rank_that_never_comes(tmp_path):
    """A rank of the node that does not come is waited for until patience ends; the others share without it."""
    state = a_state()
    store, flat, index = stored(state)
    exchange = LocalExchange(poll_s=0.002)
    with nothing_left(tmp_path):
        ranks = [
            Rank(rank, 2, exchange, store, flat, index, where=tmp_path, late=rank == 1, patience_s=0.3)
            for rank in range(2)
        ]
        for rank in ranks:
            rank.done()
    assert ranks[0].right(state)
    assert ranks[0].error is None


def test_alone_nothing_of_this_runs():
    """One rank: the same store, the same reads, no folder and no word to anyone."""
    store, flat, index = stored(a_state(1))
    reads = plan_load(made.wanted_of(flat), [index])
    exchange = LocalExchange()
    with on_node(Ranks(exchange, Identity(rank=0, world=1)), store, topic="t") as node:
        assert node.store is store
        with node.share(reads) as shared:
            assert shared == (store, reads)
    assert exchange._values == {}


def test_a_folder_that_others_could_enter_is_not_used(tmp_path):
    """A folder with wider rights, or a link to one, is refused."""
    tmp_path.chmod(0o755)
    assert open_folder(tmp_path, 1) is None
    tmp_path.chmod(0o700)
    (tmp_path / "own").mkdir(0o700)
    (tmp_path / "link").symlink_to(tmp_path / "own")
    assert open_folder(tmp_path / "link", 1) is None
    opened = open_folder(tmp_path / "own", 1)
    opened.leave()
    assert not (tmp_path / "own").exists()


def test_what_the_killed_left_is_swept(tmp_path):
    """A folder whose ranks are all gone is taken away by the next job; one that is in use is not."""
    dead = tmp_path / "everstep-node-dead"
    dead.mkdir(0o700)
    (dead / "alive.3").touch()
    (dead / "unit.1.for.2").write_bytes(b"bytes")
    living = tmp_path / "everstep-node-living"
    living.mkdir(0o700)
    other = Folder(living, 0)
    made_now = make_folder(0, need=0, where=tmp_path)
    assert not dead.exists()
    assert living.exists()
    made_now.leave()
    other.leave()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("rank", [0, 1])
def test_the_last_one_takes_all_away(tmp_path, rank):
    """In whatever order two ranks leave, nothing is left, things that nobody took included."""
    first = make_folder(0, need=0, where=tmp_path)
    both = [first, open_folder(first.path, 1)]
    both[0].write("unit.0.for.1", b"bytes")
    both[0].write("deal", b"x")
    both[rank].leave()
    assert first.path.exists()
    both[1 - rank].leave()
    assert list(tmp_path.iterdir()) == []
