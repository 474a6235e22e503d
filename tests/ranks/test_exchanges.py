"""One contract for every exchange between ranks."""

import signal
import threading
from datetime import timedelta

import pytest
import torch.distributed as dist

from everstep.errors import InvalidName, StoreUnavailable, UsageError
from everstep.ranks import torch_exchange as module
from everstep.ranks.local_exchange import LocalExchange
from everstep.ranks.store_exchange import StoreExchange
from everstep.ranks.torch_exchange import TorchExchange, agent_exchange, default_exchange, own_connection
from everstep.store.local import LocalStore
from everstep.store.memory import MemoryStore
from tests.ranks.processes import python

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning:torch.*")


def torch_exchange(store, **more):
    """An exchange over a store of torch, on a connection of its own."""
    return TorchExchange(store, prefix="e", poll_s=0.01, where="here", rank=0, **more)


@pytest.fixture(params=["local", "memory", "directory", "tcp", "file", "hash", "prefix"])
def pair(request, tmp_path):
    """Two ranks' ends of one exchange."""
    if request.param == "local":
        shared = LocalExchange()
        ends = (shared, shared)
    elif request.param in {"memory", "directory"}:
        store = MemoryStore() if request.param == "memory" else LocalStore(tmp_path / "s")
        ends = tuple(StoreExchange(store, run="r", launch="l-1", poll_s=0.01) for _ in range(2))
    else:
        made = {
            "tcp": lambda: dist.TCPStore("127.0.0.1", 0, None, True, wait_for_workers=False),
            "file": lambda: dist.FileStore(str(tmp_path / "f"), -1),
            "hash": dist.HashStore,
            "prefix": lambda: dist.PrefixStore("p", dist.HashStore()),
        }[request.param]()
        ends = tuple(torch_exchange(made.clone(), held=made) for _ in range(2))
    yield ends
    for end in ends:
        end.close()


def test_what_one_puts_the_other_finds(pair):
    """Bytes of any kind, the empty ones too; what nobody put is None."""
    one, other = pair
    assert other.find("a/b") is None
    for key, value in {
        "a/b": bytes(range(256)),
        "a/c": b"",
        "a/d.0": b"\0",
        "long": b"x" * 512 * 1024,
    }.items():
        one.put(key, value)
        assert other.find(key) == one.find(key) == value


def test_the_first_value_of_a_key_wins(pair):
    """Also when many put at once."""
    one, other = pair
    one.put("k", b"1")
    other.put("k", b"2")
    one.put("k", b"")
    assert (one.find("k"), other.find("k")) == (b"1", b"1")
    threads = [
        threading.Thread(target=pair[number % 2].put, args=("raced", b"%d" % number)) for number in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert one.find("raced") == other.find("raced") in [b"%d" % number for number in range(8)]


def test_what_is_forgotten_may_be_gone_and_others_stay(pair):
    """Best effort, and no error for what is not there."""
    one, other = pair
    one.put("a/1", b"1")
    one.put("a/10", b"10")
    one.forget("a/1")
    one.forget("a/2")
    assert other.find("a/1") in {None, b"1"}
    assert other.find("a/10") == b"10"


def test_no_question_waits(pair):
    """Asking for what is not there answers at once; waiting is for those who have a deadline."""
    assert [pair[0].find("absent") for _ in range(100)] == [None] * 100
    assert pair[0].poll_s > 0


@pytest.mark.parametrize(
    ("run", "launch"), [("a/b", "l"), ("r", "a/b"), ("r", ".."), ("", "l"), ("r", "x y")]
)
def test_a_launch_that_cannot_be_a_key_is_refused(run, launch):
    """It would reach into other folders of the store."""
    with pytest.raises(InvalidName):
        StoreExchange(MemoryStore(), run=run, launch=launch)
    with pytest.raises(InvalidName, match=r"\.\./x"):
        StoreExchange(MemoryStore(), run="r", launch="l").find("../x")


def test_an_exchange_in_the_checkpoint_store_keeps_to_its_folder():
    """Small objects that no checkpoint is made of, gone when forgotten."""
    store = MemoryStore()
    exchange = StoreExchange(store, run="r", launch="l", poll_s=1.0)
    exchange.put("m/x", b"1")
    assert [one.key for one in store.list("")] == ["runs/r/exchange/l/m/x"]
    exchange.forget("m/x")
    assert list(store.list("")) == []


_SERVER = """
import datetime, sys, time, torch.distributed as dist
store = dist.TCPStore("127.0.0.1", 0, None, True, wait_for_workers=False)
print(store.port, flush=True)
sys.stdin.read()
"""


def test_a_store_whose_process_is_gone_is_named():
    """Every verb says where it was, and that rank 0 served it; forgetting is best effort."""
    with python(_SERVER) as server:
        port = int(server.stdout.readline())
        plain = dist.TCPStore("127.0.0.1", port, None, False, wait_for_workers=False)
        exchange = torch_exchange(plain.clone())
        exchange.put("k", b"v")
        server.kill()
        server.wait()
        with pytest.raises(StoreUnavailable, match="at here does not answer") as caught:
            exchange.find("k")
        assert caught.value.fields["rank"] == 0
        with pytest.raises(StoreUnavailable):
            exchange.put("k2", b"v")
        exchange.forget("k")
        exchange.close()


def test_a_store_whose_process_is_frozen_is_given_up(monkeypatch):
    """Where torch itself would wait for ever, the call ends, later calls fail at once, and closing does not wait."""
    monkeypatch.setattr(module, "_CALL_S", 0.5)
    with python(_SERVER) as server:
        port = int(server.stdout.readline())
        exchange = agent_exchange(host="127.0.0.1", port=port, prefix="p", world=2)
        exchange.put("k", b"v")
        server.send_signal(signal.SIGSTOP)
        for _ in range(3):
            with pytest.raises(StoreUnavailable, match="does not answer"):
                exchange.find("k")
        exchange.close()
        server.send_signal(signal.SIGCONT)


def test_an_agent_that_does_not_listen_is_named(monkeypatch):
    """MASTER_ADDR and MASTER_PORT are in the message."""
    monkeypatch.setattr(module, "_CALL_S", 0.5)
    closed = dist.TCPStore("127.0.0.1", 0, None, True, timedelta(seconds=5), wait_for_workers=False)
    port = closed.port
    del closed
    with pytest.raises(StoreUnavailable, match=f"127.0.0.1:{port}"):
        agent_exchange(host="127.0.0.1", port=port, prefix="p", world=2)


def test_the_same_store_is_reached_by_its_address(tmp_path):
    """By host and port, or by path; prefixes are lost, and words still arrive."""
    tcp = dist.TCPStore("127.0.0.1", 0, None, True, wait_for_workers=False)
    for store in (tcp, dist.FileStore(str(tmp_path / "f"), 2), dist.HashStore()):
        ends = [torch_exchange(own_connection(dist.PrefixStore("p", store))) for _ in range(2)]
        ends[0].put("k", b"v")
        assert ends[1].find("k") == b"v"
        for end in ends:
            end.close()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_a_connection_to_a_store_that_ended_or_hangs_has_a_deadline(monkeypatch, number):
    """A rank that comes late, after rank 0's process went or froze, is told so; torch itself would wait half an hour."""
    with python(_SERVER) as server:
        port = int(server.stdout.readline())
        plain = dist.TCPStore("127.0.0.1", port, None, False, wait_for_workers=False)
        monkeypatch.setattr(module, "_CONNECT_S", 1.0)
        monkeypatch.setattr(module, "_CALL_S", 3.0)
        monkeypatch.setattr(dist.distributed_c10d, "_get_default_store", lambda: plain)
        server.send_signal(number)
        if number == signal.SIGKILL:
            server.wait()
        with pytest.raises(StoreUnavailable, match=f"127.0.0.1:{port}") as caught:
            default_exchange(prefix="p", world=2)
        assert caught.value.fields["rank"] == 0


def test_a_store_that_nobody_can_reach_is_refused():
    """Such as the one of torch's fake process group."""
    from torch.testing._internal.distributed.fake_pg import FakeStore

    with pytest.raises(UsageError, match="FakeStore"):
        own_connection(FakeStore())
