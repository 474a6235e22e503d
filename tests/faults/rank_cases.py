"""What the ranks of the tests of this folder do; forked by `tests.zygote`."""

import os
import signal
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch.distributed.tensor import Replicate, Shard, distribute_tensor, init_device_mesh

import everstep as es
from everstep.repository.attempts import claim
from everstep.repository.opening import open_repository
from everstep.store.local import LocalStore

__all__ = ["abandoned", "damaged", "fenced", "kept", "killed_at", "resumed", "stopped", "timed", "trained"]


def start(rendezvous):
    """A gloo process group; its store is a TCPStore in the process of rank 0."""
    host, port = rendezvous
    os.environ |= {"MASTER_ADDR": host, "MASTER_PORT": str(port)}
    dist.init_process_group("gloo")
    dist.barrier()  # a rank that dies while another is still in torch's own set-up would leave it there for minutes


def made(step):
    """A state whose every byte follows from the step: sharded unevenly, replicated and per rank."""
    world, rank = dist.get_world_size(), dist.get_rank()
    mesh = init_device_mesh("cpu", (world,), mesh_dim_names=("data",))
    grid = torch.arange(7 * 5, dtype=torch.float32).view(7, 5) + 1000 * step
    return {
        "rows": distribute_tensor(grid, mesh, [Shard(0)]),
        "columns": distribute_tensor(grid * 2, mesh, [Shard(1)]),
        "all": distribute_tensor(grid * 3, mesh, [Replicate()]),
        "plain": torch.full((11,), float(step)),
        "number": step,
        "mine": es.PerRank({"rank": rank, "step": step}),
    }


def same(state, step):
    """Whether a state is that of a step, on this rank."""
    wanted = made(step)
    return (
        all(torch.equal(state[n].to_local(), wanted[n].to_local()) for n in ("rows", "columns", "all"))
        and torch.equal(state["plain"], wanted["plain"])
        and state["number"] == step
        and state["mine"].value["step"] == step
    )


class KillAt:
    """A store that kills its process before or after its n-th call, counted from 1."""

    def __init__(self, inner, number, *, after):
        self._inner, self._number, self._after, self.calls = inner, number, after, 0

    @property
    def url(self):
        return self._inner.url

    def _called(self, verb, *args, **kwargs):
        self.calls += 1
        now = self.calls == self._number
        if now and not self._after:
            os.kill(os.getpid(), signal.SIGKILL)
        try:
            return getattr(self._inner, verb)(*args, **kwargs)
        finally:  # an answer such as "there is no such object" is one too
            if now:
                os.kill(os.getpid(), signal.SIGKILL)

    def create(self, *args, **kwargs):
        return self._called("create", *args, **kwargs)

    def get(self, *args, **kwargs):
        return self._called("get", *args, **kwargs)

    def get_range(self, *args, **kwargs):
        return self._called("get_range", *args, **kwargs)

    def list(self, *args, **kwargs):
        return self._called("list", *args, **kwargs)

    def delete(self, *args, **kwargs):
        return self._called("delete", *args, **kwargs)


def trained(rendezvous, folder, *, tell):
    """Saves steps 1 and 2; tells how many store calls this rank made."""
    killed_at(rendezvous, folder, -1, 0, False, tell=tell)


def killed_at(rendezvous, folder, victim, number, after, *, tell):
    """Restores, then saves two steps; the rank ``victim`` is killed at its n-th store call. Tells acknowledged steps."""
    start(rendezvous)
    chosen = number if dist.get_rank() == victim else 0
    store = KillAt(LocalStore(Path(folder)), chosen, after=after)
    with es.Checkpointer(store, "r") as ckpt:
        first = (ckpt.restore(made(0)) or 0) + 1
        for step in (first, first + 1):
            ckpt.save(step, made(step)).wait()
            tell(step)
    tell({"calls": store.calls})


def resumed(rendezvous, folder, *, tell):
    """Restores and tells the step, or that what came back is not that step's state."""
    start(rendezvous)
    with es.Checkpointer(folder, "r") as ckpt:
        state = made(0)
        step = ckpt.restore(state)
        tell(step if step is None or same(state, step) else f"{step} is another state")


def stopped(rendezvous, folder, signals, slow, dead, until, *, tell):
    """Trains in lockstep; ``signals`` are [rank, step, how many]; tells the step that was restored, and each done.

    The rank ``slow`` takes longer for each step, the rank ``dead`` is killed at step 3.
    """
    start(rendezvous)
    rank = dist.get_rank()
    with es.Checkpointer(folder, "r", every=1000) as ckpt:
        state = {"model": made(0), "done": 0}
        for step in ckpt.loop(state, until=until):
            for who, when, count in signals:
                for _ in range(count if (who, when) == (rank, step) else 0):
                    os.kill(os.getpid(), signal.SIGTERM)
            if (rank, step) == (dead, 3):
                os.kill(os.getpid(), signal.SIGKILL)
            time.sleep(0.3 if rank == slow else 0.01)
            dist.all_reduce(torch.ones(1))
            state["done"] = step + 1
            tell(step + 1)


def timed(rendezvous, folder, *, tell):
    """Trains with saves by the clock and at two steps; ranks differ in speed, and no collective keeps them together."""
    start(rendezvous)
    with es.Checkpointer(folder, "r", every="0.4s or at 51, 130") as ckpt:
        state = {"done": 0}
        for step in ckpt.loop(state, until=200):
            time.sleep(0.01 + 0.005 * dist.get_rank())
            state["done"] = step + 1
        tell([found.step for found in ckpt.checkpoints()])


class Flipped:
    """A store whose packs of one save come back with a flipped bit."""

    def __init__(self, inner, save):
        self._inner, self._save = inner, save

    def __getattr__(self, name):
        return getattr(self._inner, name)

    def get_range(self, key, start, into):
        self._inner.get_range(key, start, into)
        if f"/{self._save}" in key and key.startswith("packs/"):
            into[0] ^= 1


def damaged(rendezvous, folder, who, on_corrupt, *, tell):
    """Saves three steps; then one rank sees a flipped bit in the third. Tells what came back, or the error."""
    start(rendezvous)
    with es.Checkpointer(folder, "r") as ckpt:
        ckpt.restore(made(0))
        for step in (1, 2, 3):
            ckpt.save(step, made(step)).wait()
    store = LocalStore(Path(folder))
    if dist.get_rank() == who:
        store = Flipped(store, "s0000000000000003")
    with es.Checkpointer(store, "r", on_corrupt=on_corrupt) as ckpt:
        state = made(0)
        try:
            step = ckpt.restore(state)
        except es.EverstepError as error:
            tell([type(error).__name__, str(error)])
        else:
            tell(step if same(state, step) else "another state")


def abandoned(rendezvous, folder, *, tell):
    """Rank 1 is killed before it takes part in a save; rank 0's training ends with an error while it waits for it."""
    start(rendezvous)
    state = {"plain": torch.zeros(3)}
    with es.Checkpointer(folder, "r") as ckpt:
        ckpt.restore(state)
        dist.barrier()
        if dist.get_rank() == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        ckpt.save(1, state)
        raise RuntimeError("the loss is not a number")


def fenced(rendezvous, folder, *, tell):
    """Saves a step; a newer launch claims the run; the next save is told of, and what the store then has."""
    start(rendezvous)
    with es.Checkpointer(folder, "r") as ckpt:
        ckpt.restore(made(0))
        ckpt.save(1, made(1)).wait()
        if dist.get_rank() == 0:
            repository = open_repository(LocalStore(Path(folder)), create=False)
            claim(repository, "r", owner="a newer launch", world=2)
        dist.barrier()
        try:
            ckpt.save(2, made(2)).wait()
        except es.EverstepError as error:
            tell([type(error).__name__, str(error)])
        tell([found.step for found in ckpt.checkpoints()])


def kept(rendezvous, folder, until, victim, when, *, tell):
    """Trains with a retention policy and auto; looks whether what came back is right; one rank is killed at a step."""
    start(rendezvous)
    rank = dist.get_rank()
    options = {"every": "2 steps or auto", "keep": "last 2, best 1 by val_loss", "on_corrupt": "fail"}
    with es.Checkpointer(folder, "main", **options) as ckpt:
        state = made(0)
        for step in ckpt.loop(state, until=until):
            assert same(state, step), f"what came back is not the state of step {step}"
            if (rank, step) == (victim, when):
                os.kill(os.getpid(), signal.SIGKILL)
            time.sleep(0.05)
            dist.all_reduce(torch.ones(1))
            for name, leaf in made(step + 1).items():
                if isinstance(leaf, torch.Tensor):
                    state[name].copy_(leaf)
                else:
                    state[name] = leaf
            ckpt.log(val_loss=abs(step - 4.5))
            tell(step + 1)
