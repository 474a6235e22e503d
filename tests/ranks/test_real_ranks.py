"""Ranks as real processes: under torchrun, in bare process groups, and with environment variables alone."""

import textwrap

import pytest

from everstep.config import process_settings
from everstep.errors import UsageError
from everstep.ranks import Identity
from everstep.ranks.opening import choose_exchange, launch_id
from everstep.ranks.store_exchange import StoreExchange
from everstep.store.memory import MemoryStore
from tests.ranks.processes import run_ranks, torchrun

_COMMON = """
import os, sys, time
from pathlib import Path
from everstep.config import process_settings
from everstep.errors import EverstepError, RanksMissing
from everstep.ranks import open_ranks, who_am_i
from everstep.store.local import LocalStore

def opened(run="r", **more):
    told = process_settings()
    return open_ranks(told, store=LocalStore(Path(os.environ["STORE"])), run=run, **more)

def settle(ranks, topic="t/1", timeout_s=60):
    def decide(words):
        return b",".join(words[rank] for rank in sorted(words))
    return ranks.settle(topic, b"%d" % ranks.rank, decide, timeout_s=timeout_s).decode()

def exchange_of(ranks):
    return type(ranks._exchange).__name__
"""

_GLOO = """
import torch, torch.distributed as dist
def reduced():
    one = torch.ones(1)
    dist.all_reduce(one)
    return int(one)
"""


def program(*texts):
    """A program with what all of these need in front."""
    return _COMMON + "".join(map(textwrap.dedent, texts))


def written(tmp_path, *texts):
    """A program as a file, for torchrun."""
    path = tmp_path / "program.py"
    path.write_text(program(*texts))
    return str(path)


def lines(ended):
    """What the ranks printed, sorted, all of them having ended well."""
    for one in ended:
        assert one.code == 0, one.err
    return sorted(line for one in ended for line in one.out.splitlines())


def test_under_torchrun_the_agents_store_carries_it(tmp_path):
    """Before init_process_group, beside it, and after it: collectives go on, and later rounds read no older words."""
    path = written(
        tmp_path,
        _GLOO,
        """
    def say(*words):
        sys.stdout.write(" ".join(map(str, words)) + "\\n")
    before = opened()
    assert (exchange_of(before), settle(before), before.local_ranks) == ("TorchExchange", "0,1,2", (0, 1, 2))
    dist.init_process_group("gloo")
    for turn in range(3):
        after = opened()
        assert settle(after) == "0,1,2"
        assert settle(before) == "0,1,2"
        assert reduced() == 3
        after.close()
    dist.destroy_process_group()
    before.close()
    say("done", before.rank)
    """,
    )
    ended = torchrun(path, 3, STORE=str(tmp_path / "s"))
    assert ended.code == 0, ended.err
    assert sorted(ended.out.split()) == sorted(["done", "0", "done", "1", "done", "2"])


def test_workers_that_torchrun_starts_again_read_nothing_of_those_before(tmp_path):
    """The agent's store lives on: a verdict of the first start must not be taken in the second."""
    path = written(
        tmp_path,
        """
    count = os.environ["TORCHELASTIC_RESTART_COUNT"]
    ranks = opened()
    told = ranks.settle("t/1", f"{count}.{ranks.rank}".encode(), lambda words: b",".join(words.values()), timeout_s=60)
    assert told == f"{count}.0,{count}.1".encode(), told
    if count == "0":
        if ranks.rank == 1:
            sys.exit(1)
        time.sleep(60)
    ranks.close()
    """,
    )
    ended = torchrun(path, 2, "--max-restarts=1", STORE=str(tmp_path / "s"))
    assert ended.code == 0, ended.err


@pytest.mark.parametrize("init", ["tcp", "file"])
def test_in_a_bare_process_group_its_own_store_carries_it(tmp_path, init):
    """No variable is set; a group that is destroyed and made again in the same store gets no older words."""
    text = f"""
    from datetime import timedelta
    rank, world = int(os.environ["RANK_"]), int(os.environ["WORLD_"])
    def store():
        if {init!r} == "file":
            return dist.FileStore(os.environ["PLACE"] + ".file", world)
        place = os.environ["PLACE"]
        if rank == 0:
            made = dist.TCPStore("127.0.0.1", 0, world, True, wait_for_workers=False)
            with open(place + ".new", "w") as file: file.write(str(made.port))
            os.rename(place + ".new", place)
            return made
        while not os.path.exists(place): time.sleep(0.01)
        return dist.TCPStore("127.0.0.1", int(open(place).read()), world, False)
    kept = store()
    for turn in range(2):
        dist.init_process_group("gloo", store=dist.PrefixStore(str(turn), kept), rank=rank, world_size=world)
        ranks = opened()
        assert (ranks.rank, ranks.world, exchange_of(ranks)) == (rank, world, "TorchExchange")
        assert [settle(ranks), settle(ranks)] == ["0,1,2"] * 2
        assert reduced() == 3
        assert ranks.local_ranks == (0, 1, 2)
        ranks.close()
        dist.barrier()
        dist.destroy_process_group()
    print("done")
    """
    ended = run_ranks(program(_GLOO, text), 3, STORE=str(tmp_path / "s"), PLACE=str(tmp_path / "place"))
    assert lines(ended) == ["done"] * 3


def test_with_nothing_but_variables_the_checkpoint_store_carries_it(tmp_path):
    """One launch after another in the same store, by its id."""
    text = """
    os.environ["RANK"], os.environ["WORLD_SIZE"] = os.environ["RANK_"], os.environ["WORLD_"]
    ranks = opened()
    assert exchange_of(ranks) == "StoreExchange"
    ranks._waiting = type(ranks._waiting)(sleep=time.sleep, now=time.monotonic, poll_s=0.05)
    print(settle(ranks), ranks.local_ranks)
    ranks.close()
    """
    for launch in ("a", "b", "b"):
        ended = run_ranks(program(text), 2, STORE=str(tmp_path / "s"), EVERSTEP_LAUNCH=launch)
        assert lines(ended) == ["0,1 (0, 1)"] * 2


@pytest.mark.parametrize("signal", ["SIGKILL", "SIGSTOP"])
def test_a_rank_0_that_dies_or_freezes_is_named_by_the_others(tmp_path, signal):
    """Its process served the store: the others are told by the broken or the silent connection, within the deadline."""
    text = f"""
    import signal, threading
    from everstep.ranks import torch_exchange
    torch_exchange._CALL_S = 2.0
    rank, world, place = int(os.environ["RANK_"]), int(os.environ["WORLD_"]), os.environ["PLACE"]
    if rank == 0:
        store = dist.TCPStore("127.0.0.1", 0, world, True, wait_for_workers=False)
        with open(place + ".new", "w") as file: file.write(str(store.port))
        os.rename(place + ".new", place)
    else:
        while not os.path.exists(place): time.sleep(0.01)
        store = dist.TCPStore("127.0.0.1", int(open(place).read()), world, False)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=world)
    ranks = opened()
    settle(ranks)
    if rank == 0:
        open(place + f".0", "w").close()
        while not all(os.path.exists(place + f".{{r}}") for r in (1, 2)): time.sleep(0.01)
        if {signal!r} == "SIGSTOP":
            if os.fork() == 0:  # wakes its parent again, so that it can be ended
                while not all(os.path.exists(place + f".{{r}}.told") for r in (1, 2)): time.sleep(0.01)
                os.kill(os.getppid(), signal.SIGKILL)
                os._exit(0)
        os.kill(os.getpid(), signal.{signal})
    open(place + f".{{rank}}", "w").close()
    try:
        settle(ranks, timeout_s=30)
    except RanksMissing as error:
        print(error.fields["missing"], flush=True)
    open(place + f".{{rank}}.told", "w").close()
    os._exit(0)
    """
    ended = run_ranks(program(_GLOO, text), 3, STORE=str(tmp_path / "s"), PLACE=str(tmp_path / "place"))
    assert [one.out for one in ended[1:]] == ["(0,)\n"] * 2, ended


def told(**variables):
    """What a launcher says."""
    return process_settings({name: str(value) for name, value in variables.items()})


def test_a_launch_has_an_id_of_its_own():
    """The user's word first, then the drill's or launcher's."""
    slurm = {"SLURM_JOB_ID": "77", "SLURM_STEP_ID": "0"}
    torchrun_told = {"TORCHELASTIC_RUN_ID": "x", "TORCHELASTIC_RESTART_COUNT": 2}
    assert launch_id(told(EVERSTEP_LAUNCH="mine", EVERSTEP_ATTEMPT=3)) == "mine"
    assert launch_id(told(EVERSTEP_ATTEMPT=3, **slurm)) == "attempt-3"
    assert launch_id(told(**torchrun_told, **slurm)) == "torchrun-x-2"
    assert launch_id(told(SLURM_RESTART_COUNT=1, **slurm)) == "slurm-77-0-1"


def test_without_anything_in_common_ranks_are_refused():
    """A bare MASTER_ADDR is no connection: nobody listens there before init_process_group."""
    me = Identity(rank=0, world=2)
    bare = {"RANK": 0, "WORLD_SIZE": 2, "MASTER_ADDR": "localhost", "MASTER_PORT": 1}
    with pytest.raises(UsageError, match="nothing connects") as caught:
        choose_exchange(told(**bare), me, store=MemoryStore(), run="r")
    assert "EVERSTEP_LAUNCH" in caught.value.hint
    found = choose_exchange(told(EVERSTEP_LAUNCH="l", **bare), me, store=MemoryStore(), run="r")
    assert isinstance(found, StoreExchange)
