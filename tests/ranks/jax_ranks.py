"""What the tests of jax's exchange run in processes of their own: see `tests.jax_world`."""

import threading
import time

import jax
import pytest

from everstep.errors import StoreUnavailable
from everstep.ranks.jax_exchange import JaxExchange, jax_identity


def wait_for(exchange, key):
    """A value that another process puts, within half a minute."""
    end = time.monotonic() + 30
    while time.monotonic() < end:
        found = exchange.find(key)
        if found is not None:
            return found
        time.sleep(exchange.poll_s)
    raise AssertionError(f"nobody has put {key}")


def exchange():
    """Put, find and forget between two processes."""
    rank, world = jax_identity()
    assert (rank, world) == (jax.process_index(), 2)
    mine, other = JaxExchange(prefix="run/a b"), JaxExchange(prefix="run")
    assert mine.find("word/0.x") is None or rank == 1
    value = bytes(range(256)) * 2048
    if rank == 0:
        mine.put("word", b"whole")
        mine.put("word/0.x", value)
        mine.put("word/0.x", value)
        mine.put("word/0.x", b"another")
        mine.put("empty", b"")
        mine.put("told", b"1")
    else:
        assert wait_for(mine, "told") == b"1"
        assert mine.find("word/0.x") == value
        assert mine.find("empty") == b""
        assert other.find("word") is None
        mine.forget("word")
        mine.forget("word")
        assert mine.find("word") is None
        assert mine.find("word/0.x") == value
        mine.put("word", b"again")
        mine.put("done", b"1")
    threads = [
        threading.Thread(target=mine.put, args=("raced", b"%d" % n)) for n in range(2 * rank, 2 * rank + 2)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wait_for(mine, "done") == b"1"
    assert mine.find("word") == b"again"
    mine.put(f"saw/{rank}", mine.find("raced"))
    assert wait_for(mine, "saw/0") == wait_for(mine, "saw/1")
    mine.close()
    mine.close()
    jax.distributed.shutdown()
    assert jax_identity() is None
    if rank == 0:
        for call in (lambda: other.find("word"), lambda: other.put("late", b"")):
            with pytest.raises(StoreUnavailable, match="does not answer") as caught:
                call()
            assert caught.value.fields["rank"] == 0
            assert "shutdown" in caught.value.hint
    other.forget("word")
    with pytest.raises(StoreUnavailable, match="not initialised"):
        JaxExchange(prefix="run")
