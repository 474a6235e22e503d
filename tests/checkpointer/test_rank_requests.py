"""What saves and restores of several ranks cost: every request and byte, counted on each rank."""

from collections import Counter

import everstep as es
from everstep.store.count import Count
from everstep.store.local import LocalStore
from tests.checkpointer.launches import told, told_by_each
from tests.checkpointer.rank_requests import COLUMNS, LARGE, LEAVES, ROWS

HERE = "tests.checkpointer.rank_requests"
STATE = LEAVES * ROWS * COLUMNS * 4
CHUNK = 8 * 2**20


def by_part(ranks):
    """Each rank's parts by name."""
    return [{one["part"]: one for one in words} for words in ranks]


def moved(ranks, part, which):
    """Bytes of all ranks together."""
    return sum(rank[part][which] for rank in ranks)


def read_once(ranks, part, word):
    """Keys of this kind that were read, all ranks together, none of them twice."""
    keys = Counter(key for rank in ranks for key in rank[part]["read"] if word in key)
    assert set(keys.values()) == {1}, keys
    return len(keys)


def test_each_call_of_a_training_on_three_ranks(zygote, tmp_path):
    """Rank 0 begins and commits with seven calls beside its packs, the others make two: a pack and an index.

    One leaf of it is loaded for its own bytes.
    """
    folder = tmp_path / "store"
    ranks = by_part(told_by_each(zygote, f"{HERE}:trained", str(folder), world=3))
    first, *others = ranks
    base = ["get commits", "get tombs"]
    for save, before, packs in (
        ("save 1", [], ["create pack"]),
        ("save 2", base, ["create pack"]),
        ("save 3", base, ["create pack"]),
        ("save 4", base, ["create pack"]),
    ):
        assert first[save]["calls"] == [
            "create plans",
            "list attempts",
            *before,
            *packs,
            "create index",
            "list saves",
            "create manifest",
            "create commits",
        ]
        for other in others:
            assert other[save]["calls"] == [*packs, "create index"]

    assert STATE <= moved(ranks, "save 1", "bytes_in") <= 1.01 * STATE
    for save in (
        "save 2",
        "save 3",
        "save 4",
    ):  # the frozen leaves are not stored again, also after a restore
        assert STATE // LEAVES <= moved(ranks, save, "bytes_in") <= STATE // LEAVES + 0.01 * STATE

    assert first["open"]["calls"] == ["get everstep.json", "get catalogue"]
    assert [other["open"]["calls"] for other in others] == [["get everstep.json"]] * 2
    assert STATE <= moved(ranks, "restore", "bytes_out") <= 1.05 * STATE
    for rank in ranks:
        assert STATE // 3 <= rank["restore"]["bytes_out"] <= 1.05 * STATE // 3
    assert read_once(ranks, "restore", "/manifest.") == 1
    assert read_once(ranks, "restore", "/rank-") == 3
    assert read_once(ranks, "restore", "/commits/") == 1

    store = Count(LocalStore(folder))  # one leaf of eight, of which each rank has packed a third
    found = es.load(store, "r", only=["w3"])
    assert list(found) == ["w3"]
    assert found["w3"].shape == (ROWS, COLUMNS)
    assert store.calls["get_range"] == 3
    assert STATE // LEAVES <= store.bytes_out <= 1.05 * STATE // LEAVES


def test_replicas_leave_the_store_once(zygote, tmp_path):
    """Four ranks that hold the same write it once, a part each, and read it once, for the node."""
    ranks = by_part(told_by_each(zygote, f"{HERE}:replicas", str(tmp_path / "store"), world=4))
    state = LEAVES * 1_000_000
    assert state <= moved(ranks, "save", "bytes_in") <= 1.01 * state
    assert state <= moved(ranks, "restore", "bytes_out") <= 1.05 * state
    for rank in ranks:
        assert state // 4 <= rank["save"]["bytes_in"] <= 1.02 * state // 4
        assert rank["restore"]["bytes_out"] <= 1.05 * state // 4
    assert read_once(ranks, "restore", "/manifest.") == 1
    assert read_once(ranks, "restore", "/rank-") == 4


def test_an_eighth_of_a_tensor(zygote, tmp_path):
    """Ranks of one node read each chunk once between them; a rank that is alone on its node reads the chunks that
    hold its rows, and no more.
    """
    folder = str(tmp_path / "store")
    assert told(zygote, f"{HERE}:large", folder, world=1) == ["saved"]
    ranks = by_part(told_by_each(zygote, f"{HERE}:eighth", folder, world=8))
    total = LARGE[0] * LARGE[1] * 4
    for part in ("rows", "columns"):
        assert total <= moved(ranks, part, "bytes_out") <= 1.05 * total
        assert read_once(ranks, part, "/manifest.") == 1
        assert read_once(ranks, part, "/rank-") == 1
    for rank, words in enumerate(ranks):
        begins, ends = rank * total // 8, (rank + 1) * total // 8
        whole = min(-(-ends // CHUNK) * CHUNK, total) - begins // CHUNK * CHUNK
        assert whole <= words["nodes"]["bytes_out"] <= whole + 0.05 * total / 8


def test_one_rank_prunes_for_all(zygote, tmp_path):
    """Rank 0 gives up and deletes; the others write their packs and indexes, and ask for nothing more."""
    first, *others = by_part(told_by_each(zygote, f"{HERE}:pruned", str(tmp_path / "store"), world=3))
    deleted = Counter(first["saves and prunes"]["calls"])
    assert deleted["create tombs"] == deleted["delete plans"] == 2
    assert deleted["delete pack"] == deleted["delete index"] == 6
    for other in others:
        assert set(other["saves and prunes"]["calls"]) == {"create pack", "create index"}
