"""Objects with state_dict and load_state_dict: schedulers, scalers, loaders and one's own."""

import warnings

import pytest
import torch

from everstep.errors import EverstepError, RestoreError, RestoreMismatch, UnsupportedLeaf
from everstep.state import RNG, PerRank, flatten
from tests.state.moving import loaded, restored, saved

S = torch.optim.lr_scheduler
SCHEDULERS = {
    "step": lambda o: S.StepLR(o, 2),
    "multi": lambda o: S.MultiStepLR(o, [1, 3]),
    "cosine": lambda o: S.CosineAnnealingWarmRestarts(o, 3),
    "one": lambda o: S.OneCycleLR(o, 0.5, total_steps=20),
    "cyclic": lambda o: S.CyclicLR(o, 0.1, 0.5, cycle_momentum=False),
    "lambda": lambda o: S.LambdaLR(o, lambda step: 0.9**step),
    "sequence": lambda o: S.SequentialLR(
        o, [S.LinearLR(o, 0.1, total_iters=3), S.ExponentialLR(o, 0.9)], [3]
    ),
    "chained": lambda o: S.ChainedScheduler([S.ConstantLR(o, 0.5, 4), S.ExponentialLR(o, 0.9)]),
    "plateau": lambda o: S.ReduceLROnPlateau(o, patience=0),
}


def schedule(name):
    """An optimizer and its scheduler."""
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.ones(1))], lr=1.0)
    return {"opt": optimizer, "sched": SCHEDULERS[name](optimizer)}


def go(state, steps):
    """The learning rates of some steps."""
    rates = []
    for n in range(steps):
        state["opt"].step()
        if isinstance(state["sched"], S.ReduceLROnPlateau):
            state["sched"].step(float(n % 3))
        else:
            state["sched"].step()
        rates.append(state["opt"].param_groups[0]["lr"])
    return rates


@pytest.mark.filterwarnings("ignore:.*optimizer.step:UserWarning")
@pytest.mark.filterwarnings("ignore:The epoch parameter:UserWarning")
@pytest.mark.parametrize("name", SCHEDULERS)
def test_schedules_go_on(name):
    """The learning rates after a restore are those that would have been."""
    source = schedule(name)
    go(source, 4)
    live = schedule(name)
    restored(source, live)
    assert go(live, 6) == go(source, 6)


def test_a_gradient_scaler_goes_on():
    """Scale and growth come back; a scaler that is off has nothing, and fits one that is off."""
    source, live = torch.amp.GradScaler("cpu", init_scale=8.0), torch.amp.GradScaler("cpu")
    restored({"s": source}, {"s": live})
    assert live.get_scale() == 8.0
    restored(
        {"s": torch.amp.GradScaler("cpu", enabled=False)}, {"s": torch.amp.GradScaler("cpu", enabled=False)}
    )


def test_what_load_state_dict_refuses_is_told_by_path():
    """An object's own error comes as everstep's, with the path and the cause."""
    with pytest.raises(RestoreError, match=r"deep/s is of type torch.amp.*load_state_dict") as caught:
        restored(
            {"deep": {"s": torch.amp.GradScaler("cpu", enabled=False)}},
            {"deep": {"s": torch.amp.GradScaler("cpu")}},
        )
    assert isinstance(caught.value.__cause__, RuntimeError)


class Holder:
    """Anything."""

    def __init__(self, state):
        self.state = state

    def state_dict(self):
        return self.state

    def load_state_dict(self, state):
        self.state = state


@pytest.mark.parametrize(
    "state",
    [
        {},
        {"a": 1, "b": (None, [b"x", {2: 3.5}])},
        None,
        7,
        (1, 2),
        ["x"],
        {"big": b"z" * 10000, "t": {"u": "\ud800" * 5000}},
    ],
    ids=repr,
)
def test_any_state_is_handed_back_as_it_was(state):
    """A dict, a tuple, None, long bytes: load_state_dict gets an equal value of the same type."""
    live = Holder({"other": "thing"})
    restored({"h": Holder(state)}, {"h": live})
    assert live.state == state
    assert type(live.state) is type(state)
    assert loaded({"h": Holder(state)})["h"] == state


def test_functions_and_objects_in_a_state_are_refused_by_path():
    """The leaf is named; nothing is pickled."""
    for bad in (print, object(), lambda: None, Holder({}), torch.Generator(), RNG(), PerRank(1)):
        with pytest.raises(UnsupportedLeaf, match="h/deep/0/x") as caught:
            flatten({"h": Holder({"deep": [{"x": bad}]})})
        assert caught.value.fields["path"] == "h/deep/0/x"


def test_a_failing_state_dict_is_told_by_path():
    """The cause is kept."""

    class Broken(Holder):
        def state_dict(self):
            raise ValueError("not now")

    with pytest.raises(UnsupportedLeaf, match=r"b is of type .*Broken.*not now"):
        flatten({"b": Broken({})})


def loader(workers, seed=0):
    """A shuffling loader of twenty numbers."""
    from torchdata.stateful_dataloader import StatefulDataLoader

    return StatefulDataLoader(
        list(range(20)), batch_size=2, shuffle=True, num_workers=workers, generator=torch.Generator().manual_seed(seed),
        multiprocessing_context="fork" if workers else None,
    )  # fmt: skip


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("workers", [0, 2])
def test_a_loader_goes_on_at_its_position(workers):
    """The batches after a restore are the batches that would have come."""
    source = loader(workers)
    batches = iter(source)
    for _ in range(3):
        next(batches)
    entries_kept = saved({"l": source})
    rest = [batch.tolist() for batch in batches]
    live = loader(workers, seed=5)
    from everstep.state import match
    from tests.state.moving import fill

    fill(match({"l": live}, entries_kept[0]), entries_kept[1])
    assert [batch.tolist() for batch in live] == rest


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("was", "now"), [(0, 2), (2, 0), (2, 1)])
def test_another_number_of_workers_is_told_in_words(was, now):
    """Not an assertion inside torchdata at the first batch."""
    source = loader(was)
    next(iter(source))
    with pytest.raises(
        RestoreMismatch, match=f"num_workers={was} and the loader in the state has num_workers={now}"
    ):
        restored({"l": source}, {"l": loader(now)})


def test_every_error_is_an_everstep_error():
    """Callers catch one root."""
    with warnings.catch_warnings(), pytest.raises(EverstepError):
        flatten({"x": object()})
