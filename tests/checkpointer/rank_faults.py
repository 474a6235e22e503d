"""Store calls that fail on one rank, in saves and in restores; forked by `tests.zygote`."""

from pathlib import Path

import torch.distributed as dist

import everstep as es
from everstep.errors import StoreUnavailable
from everstep.store.local import LocalStore
from tests.checkpointer.rank_models import start
from tests.checkpointer.rank_refusals import right, same

__all__ = ["failing"]


class Failing:
    """A store whose n-th call from `arm` on fails, before or after its work is done."""

    def __init__(self, inner):
        self._inner, self._left, self._after, self.failed = inner, 0, False, False

    @property
    def url(self):
        return self._inner.url

    def arm(self, number, *, after):
        """0: no call fails."""
        self._left, self._after, self.failed = number, after, False

    def _called(self, verb, *args):
        self._left -= 1
        fails = self._left == 0
        self.failed |= fails
        if fails and not self._after:
            raise StoreUnavailable("the cable is out")
        answer = getattr(self._inner, verb)(*args)
        if fails:
            raise StoreUnavailable("the cable is out")
        return answer

    def create(self, *args):
        return self._called("create", *args)

    def get(self, *args):
        return self._called("get", *args)

    def get_range(self, *args):
        return self._called("get_range", *args)

    def list(self, *args):
        return self._called("list", *args)

    def delete(self, *args):
        return self._called("delete", *args)


def failing(rendezvous, folder, victim, *, tell):
    """One rank's calls fail in turn; tells what became of each save and restore. After each the same again, rightly."""
    start(rendezvous)
    store = Failing(LocalStore(Path(folder)))
    step = 1
    with es.Checkpointer(store, "r") as ckpt:
        ckpt.restore(right(0))
        ckpt.save(1, right(1)).wait()
        for after in (False, True):
            for number in range(1, 100):
                if dist.get_rank() == victim:
                    store.arm(number, after=after)
                step += 1
                outcome = attempted(lambda step=step: ckpt.save(step, right(step)).wait())
                told = [None]
                if dist.get_rank() == victim:
                    told = [store.failed]
                    store.arm(0, after=False)
                dist.broadcast_object_list(told, src=victim)
                tell(["save", number, after, *outcome])
                newest = ckpt.latest().step
                assert newest == step if outcome == ["done"] else newest in {step - 1, step}, (number, after)
                if not told[0]:
                    break
                step += 1
                ckpt.save(step, right(step)).wait()
        for number in range(1, 100):
            if dist.get_rank() == victim:
                store.arm(number, after=False)
            state = right(0)
            outcome = attempted(lambda state=state: ckpt.restore(state))
            told = [None]
            if dist.get_rank() == victim:
                told = [store.failed]
                store.arm(0, after=False)
            dist.broadcast_object_list(told, src=victim)
            tell(["restore", number, False, *outcome])
            state = state if outcome == ["done"] else right(0)
            assert outcome == ["done"] or ckpt.restore(state) == step
            assert same(state, step)
            if not told[0]:
                break


def attempted(what):
    """``done``, or the error."""
    try:
        what()
    except es.EverstepError as error:
        return [type(error).__name__, str(error)]
    return ["done"]
