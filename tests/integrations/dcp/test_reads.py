"""What a load asks the store for: bytes and requests, counted."""

import torch
import torch.distributed.checkpoint as dcp

from everstep.integrations.dcp import StorageReader, StorageWriter
from everstep.store.count import Count
from everstep.store.local import LocalStore
from tests.integrations.dcp import read_jobs
from tests.integrations.dcp.worlds import emptied, quiet


def bytes_of(state):
    """Of the tensors in a flat state."""
    return sum(value.nbytes for value in state.values())


def test_a_full_load_fetches_what_it_needs(tmp_path):
    """At most a twentieth more than the tensors, manifest and index included, in a bounded number of requests."""
    state = {f"layer{n:02}": torch.randn(256, 256) for n in range(40)}
    with quiet():
        dcp.save(state, storage_writer=StorageWriter(tmp_path, "r", 1), no_dist=True)
        store = Count(LocalStore(tmp_path))
        found = emptied(state)
        dcp.load(found, storage_reader=StorageReader(store, "r"), no_dist=True)
    assert all(torch.equal(found[name], value) for name, value in state.items())
    assert store.bytes_out <= 1.05 * bytes_of(state)
    assert store.calls["create"] == 0
    assert store.calls["list"] <= 3
    assert store.calls["get"] <= 8
    assert store.calls["get_range"] <= len(state)


def test_a_twentieth_of_the_tensors_fetches_a_twentieth_of_the_bytes(tmp_path):
    """Beside the manifest and the index, nothing but the tensors asked for."""
    state = {f"layer{n:02}": torch.randn(256, 256) for n in range(40)}
    with quiet():
        dcp.save(state, storage_writer=StorageWriter(tmp_path, "r", 1), no_dist=True)
        store = Count(LocalStore(tmp_path))
        found = {name: torch.zeros(256, 256) for name in ("layer07", "layer31")}
        dcp.load(found, storage_reader=StorageReader(store, "r"), no_dist=True)
    assert torch.equal(found["layer31"], state["layer31"])
    described = sum(path.stat().st_size for path in (tmp_path / "runs").rglob("saves/**/*.json"))
    assert store.bytes_out <= 1.05 * (bytes_of(found) + 2 * described)


def test_resharding_fetches_each_element_about_once(ranks, tmp_path):
    """Four ranks that saved by rows and load by columns fetch only rows that meet their columns: whole chunks."""
    fetched, needed, calls = ranks.run(read_jobs.resharded, str(tmp_path), "r")[0]
    assert fetched <= 1.05 * needed
    assert calls <= 4 * 20


def test_a_rank_asks_only_for_the_indexes_it_needs(ranks, tmp_path):
    """Loaded as it was saved, a rank reads its own index, and the first for what rank 0 has."""
    for indexes in ranks.run(read_jobs.same_layout, str(tmp_path), "r"):
        assert indexes <= 2


def test_a_replica_is_found_where_dcp_had_it_written(ranks, tmp_path):
    """DCP deals replicas to ranks in its own way; the manifest says to which, so one index is read."""
    assert ranks.run(read_jobs.replicas, str(tmp_path), "r") == [[1] * 8] * 4


def test_a_save_asks_for_little(ranks, tmp_path):
    """A rank: its packs and one index. The coordinator: plan, fence, a list, manifest, record."""
    for rank, calls in enumerate(ranks.run(read_jobs.saved, str(tmp_path), "r")):
        assert calls["create"] <= (5 if rank == 0 else 2)
        assert sum(calls.values()) <= (16 if rank == 0 else 3)
