"""The exchange over jax's coordination service."""

import sys
from types import SimpleNamespace

import jax
import pytest

from everstep.errors import NotYetSupported, StoreUnavailable
from everstep.ranks import jax_exchange
from everstep.ranks.jax_exchange import JaxExchange, jax_identity
from tests.jax_world import in_ranks


def test_two_processes_exchange_values(tmp_path):
    """The first value of a key wins; bytes of any kind and none come whole; a key that goes takes no other with it."""
    in_ranks("tests.ranks.jax_ranks:exchange", ranks=2, folder=tmp_path)


def test_without_jax_distributed_there_is_none(monkeypatch):
    """Then another source says who this is; jax itself is not imported for it."""
    assert jax_identity() is None
    with pytest.raises(StoreUnavailable, match="not initialised"):
        JaxExchange(prefix="run")
    monkeypatch.delitem(sys.modules, "jax")
    assert jax_identity() is None


def test_a_jax_that_has_other_names_inside_is_named(monkeypatch):
    """The client has no public name: a version that moved it is said, not guessed around."""
    client = SimpleNamespace(key_value_set_bytes=print, key_value_delete=print)
    state = SimpleNamespace(client=client, num_processes=2)
    monkeypatch.setattr("jax._src.distributed.global_state", state)
    with pytest.raises(NotYetSupported, match=f"jax {jax.__version__}.*key_value_try_get_bytes"):
        JaxExchange(prefix="run")
    monkeypatch.setattr("jax._src.distributed.global_state", SimpleNamespace())
    with pytest.raises(NotYetSupported, match="other names"):
        JaxExchange(prefix="run")
    monkeypatch.delattr("jax._src.distributed.global_state")
    with pytest.raises(NotYetSupported, match="global_state"):
        JaxExchange(prefix="run")


def test_a_service_that_hangs_is_given_up(monkeypatch):
    """A frozen process 0 answers nothing: each call ends at its deadline, and names it."""
    import threading

    gone = threading.Event()
    client = SimpleNamespace(
        key_value_set_bytes=lambda *_: gone.wait(),
        key_value_try_get_bytes=lambda *_: gone.wait(),
        key_value_delete=lambda *_: gone.wait(),
    )
    monkeypatch.setattr("jax._src.distributed.global_state", SimpleNamespace(client=client, num_processes=2))
    monkeypatch.setattr(jax_exchange, "_CALL_S", 0.05)
    exchange = JaxExchange(prefix="run")
    try:
        for call in (lambda: exchange.find("a"), lambda: exchange.put("a", b"")):
            with pytest.raises(StoreUnavailable, match="does not answer"):
                call()
        exchange.forget("a")
        exchange.close()
    finally:
        gone.set()
