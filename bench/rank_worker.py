"""One rank of a sharded training under torchrun: saves or loads by one contender; rank 0 writes what all took."""

import json
import logging
import statistics
import sys
import time
import warnings
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.fsdp import fully_shard

import everstep as es
from bench.contenders import cached_stager
from bench.training import Network
from bench.worker import cpu_s

__all__ = ["main"]


class Sharded:
    """The model of `bench.training` under FSDP2, with Adam's moments: every rank holds its part of each tensor."""

    def __init__(self, quick):
        torch.manual_seed(0)
        self.model = Network(*((256, 4, 10_000) if quick else (768, 12, 50_257)))
        for block in self.model.blocks:
            fully_shard(block)
        fully_shard(self.model)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-3)

    def step(self):
        for parameter in self.model.parameters():
            parameter.grad = torch.randn_like(parameter)  # no two chunks alike
        self.optimizer.step()
        self.optimizer.zero_grad()

    def change(self):
        with torch.no_grad():
            for parameter in self.model.parameters():
                parameter.to_local().add_(1e-3)
                for moment in self.optimizer.state[parameter].values():
                    (moment.to_local() if hasattr(moment, "to_local") else moment).add_(1e-3)

    @property
    def nbytes(self):
        return sum(12 * parameter.numel() for parameter in self.model.parameters())


class Everstep:
    """This package."""

    def __init__(self, training, folder):
        self._state = {"model": training.model, "optimizer": training.optimizer}
        self._ckpt = es.Checkpointer(str(folder), "bench", listener=lambda _event: None)
        self._ckpt.restore(self._state, step=None)

    def save(self, number):
        return self._ckpt.save(number, self._state)

    def finish(self, pending):
        pending.wait()

    def load(self, number):
        self._ckpt.restore(self._state, step=number)


class Dcp:
    """torch.distributed.checkpoint, synchronous, with its files synced."""

    def __init__(self, training, folder):
        self._training = training
        self._folder = Path(folder)

    def _state(self):
        model, optimizer = get_state_dict(self._training.model, self._training.optimizer)
        return {"model": model, "optimizer": optimizer}

    def _writer(self, number):
        return dcp.FileSystemWriter(self._folder / str(number), sync_files=True)

    def save(self, number):
        dcp.save(self._state(), storage_writer=self._writer(number))

    def finish(self, pending):
        """Durable already."""

    def load(self, number):
        state = self._state()
        dcp.load(state, checkpoint_id=self._folder / str(number))
        set_state_dict(
            self._training.model,
            self._training.optimizer,
            model_state_dict=state["model"],
            optim_state_dict=state["optimizer"],
        )


class DcpAsync(Dcp):
    """torch.distributed.checkpoint, asynchronous, with its cached stager."""

    def __init__(self, training, folder):
        super().__init__(training, folder)
        self._stager = cached_stager()
        self._group = dist.new_group(backend="gloo")

    def save(self, number):
        return dcp.async_save(
            self._state(),
            storage_writer=self._writer(number),
            async_stager=self._stager,
            process_group=self._group,
        )

    def finish(self, pending):
        getattr(pending, "upload_completion", pending).result()


CONTENDERS = {"everstep": Everstep, "DCP": Dcp, "DCP async": DcpAsync}


def slowest(seconds):
    """The longest time of any rank: the training waits for all."""
    found = torch.tensor(seconds)
    dist.all_reduce(found, dist.ReduceOp.MAX)
    return found.item()


def total(count):
    found = torch.tensor(float(count), dtype=torch.float64)
    dist.all_reduce(found)
    return found.item()


def bytes_read():
    """What this process has asked the kernel to read, from the page cache or the disk."""
    fields = dict(line.split(": ") for line in Path("/proc/self/io").read_text().splitlines())
    return int(fields["rchar"])


def saves(training, contender, rounds):
    stalls, durables, cpus = [], [], []
    for number in range(1, rounds + 2):
        training.change()
        dist.barrier()
        used, began = cpu_s(), time.perf_counter()
        pending = contender.save(number)
        stalls.append(slowest(time.perf_counter() - began))
        contender.finish(pending)
        durables.append(slowest(time.perf_counter() - began))
        cpus.append(total(cpu_s() - used))
    return {
        "bytes": training.nbytes,
        "first_stall_s": stalls[0],
        "stall_s": statistics.median(stalls[1:]),
        "durable_s": statistics.median(durables[1:]),
        "cpu_s": statistics.median(cpus[1:]),
    }


def loads(contender, rounds):
    times, read = [], []
    for _ in range(rounds + 1):
        dist.barrier()
        before, began = bytes_read(), time.perf_counter()
        contender.load(rounds + 1)
        times.append(slowest(time.perf_counter() - began))
        read.append(total(bytes_read() - before))
    return {"load_s": statistics.median(times[1:]), "read_bytes": statistics.median(read[1:])}


def main(what, name, folder, rounds, size, answer):
    warnings.filterwarnings("ignore")
    logging.disable(logging.WARNING)
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    training = Sharded(size == "quick")
    training.step()
    contender = CONTENDERS[name](training, folder)
    time.sleep(3 if (what, size) == ("save", "full") else 0)  # a training's first steps
    rounds = int(rounds)
    found = saves(training, contender, rounds) if what == "save" else loads(contender, rounds)
    if dist.get_rank() == 0:
        Path(answer).write_text(json.dumps(found))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(*sys.argv[1:])
