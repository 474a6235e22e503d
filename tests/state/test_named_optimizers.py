"""Optimizer state belongs to parameters by name, not by position."""

import pytest
import torch

from everstep.errors import RestoreMismatch, UnsupportedLeaf
from everstep.format.entries import Container
from everstep.state import PerRank, Stage, flatten, match
from tests.state.moving import fill, loaded, restored, saved
from tests.state.uniting import loaded_from, restored_by


def model(*, seed=0, names="ab"):
    """Two layers of one size, so that nothing but the name tells their state apart."""
    torch.manual_seed(seed)
    return torch.nn.ModuleDict({name: torch.nn.Linear(2, 2) for name in names})


def stepped(optimizer, modules, steps=2, seed=1):
    """The optimizer after some steps on random gradients."""
    torch.manual_seed(seed)
    for _ in range(steps):
        for module in modules:
            for parameter in module.parameters():
                parameter.grad = torch.randn_like(parameter)
        optimizer.step()
    return optimizer


def moments(optimizer, module):
    """The first moments by the module's names."""
    return {
        name: optimizer.state[p]["exp_avg"].clone()
        for name, p in module.named_parameters()
        if p in optimizer.state
    }


def equal(one, other):
    """Same names, same bits."""
    return bool(one) and one.keys() == other.keys() and all(torch.equal(one[k], other[k]) for k in one)


def adam(module, **how):
    """AdamW over a module's parameters, without names of its own."""
    return torch.optim.AdamW(module.parameters(), **how)


def world(seed=0, **how):
    """A model and a used optimizer."""
    net = model(seed=seed, **how)
    return {"model": net, "opt": stepped(adam(net), [net], seed=seed + 1)}


def keys(state, path):
    """The keys of a container in what is saved."""
    (found,) = (e for e in flatten(state).entries if isinstance(e, Container) and e.path == path)
    return found.keys


NAMES = ["a.weight", "a.bias", "b.weight", "b.bias"]


def test_the_state_stands_under_the_names_of_the_module():
    """With the group of each, and without numbers."""
    state = world()
    assert keys(state, "opt") == ["state", "param_groups", "members"]
    assert keys(state, "opt/state") == keys(state, "opt/members") == NAMES
    assert "opt/state/b.weight/exp_avg" in {entry.path for entry in flatten(state).entries}


@pytest.mark.parametrize(
    "put",
    [
        lambda net, opt: {"opt": opt, "model": net},
        lambda net, opt: {"opt": opt, "later": [1, {"nested": (net,)}]},
        lambda net, opt: {"opt": opt, "own": PerRank(net)},
        lambda net, opt: {"opt": [opt], "x": Stage({"m": 1}), "model": Stage(net)},
        lambda net, opt: {"opt": opt, "model": torch.compile(net, backend="eager")},
    ],
    ids=["before", "nested", "per rank", "stage", "compiled"],
)
def test_the_module_may_stand_anywhere(put):
    """Before or after the optimizer, in containers, wrapped."""
    net = model()
    state = put(net, stepped(adam(net), [net]))
    assert keys(state, "opt/0/members" if isinstance(state["opt"], list) else "opt/members") == NAMES


@pytest.mark.parametrize(
    "wrapped",
    [
        torch.nn.DataParallel,
        lambda net: torch.compile(net, backend="eager"),
        lambda net: torch.nn.ModuleDict({"a": torch.compile(net["a"], backend="eager"), "b": net["b"]}),
        lambda net: torch.nn.ModuleDict({"a": _checkpointed(net["a"]), "b": net["b"]}),
    ],
    ids=["data parallel", "compiled", "a part compiled", "activation checkpointing"],
)
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_names_are_those_without_wrappers(wrapped):
    """Of data parallelism, compilation and activation checkpointing, for the module's leaves too; each restores into the other."""
    plain, net = world(), model(seed=5)
    outer = wrapped(net)
    state = {"model": outer, "opt": adam(outer)}
    assert keys(state, "model") == NAMES
    assert all(e.extra["parameter"] for e in flatten(state).entries if e.path.startswith("model/"))
    assert keys(state, "opt/members") == NAMES
    restored(plain, state)
    assert equal(moments(state["opt"], net), moments(plain["opt"], plain["model"]))
    assert torch.equal(net["a"].weight, plain["model"]["a"].weight)
    again = world(seed=7)
    restored(state, again)
    assert equal(moments(again["opt"], again["model"]), moments(plain["opt"], plain["model"]))


def _checkpointed(module):
    from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper

    return checkpoint_wrapper(module)


@pytest.mark.parametrize("used", [False, True])
def test_another_order_of_parameters_takes_the_state_by_name(used):
    """A model whose layers are built in another order goes on with the moments of its layers."""
    source = world()
    live = world(seed=3, names="ba") if used else {"model": (net := model(names="ba")), "opt": adam(net)}
    restored(source, live)
    assert equal(moments(live["opt"], live["model"]), moments(source["opt"], source["model"]))
    assert not torch.equal(*list(moments(live["opt"], live["model"]).values())[::2])


def test_groups_follow_the_names():
    """In another order within a group; the options are the saved ones."""

    def grouped(net, *, turned=False, **how):
        weights = [net[name].weight for name in "ab"]
        biases = [net[name].bias for name in "ab"]
        if turned:
            weights, biases = weights[::-1], biases[::-1]
        return torch.optim.AdamW(
            [{"params": weights, "lr": 0.5}, {"params": biases, "weight_decay": 0.0}], **how
        )

    first, second = model(), model(seed=1)
    source = {"model": first, "opt": stepped(grouped(first), [first])}
    live = {"model": second, "opt": grouped(second, turned=True, lr=9.0)}
    restored(source, live)
    assert equal(moments(live["opt"], second), moments(source["opt"], first))
    assert [group["lr"] for group in live["opt"].param_groups] == [0.5, 0.001]
    assert live["opt"].param_groups[0]["params"][0] is second["b"].weight


def test_a_parameter_that_was_never_stepped_has_no_state():
    """On either side: the live optimizer then has none for it either."""
    source, live = model(), world(seed=2)
    source["b"].requires_grad_(False)
    state = {"model": source, "opt": adam(source)}
    for parameter in source["a"].parameters():
        parameter.grad = torch.ones_like(parameter)
    state["opt"].step()
    restored(state, live)
    assert set(moments(live["opt"], live["model"])) == {"a.weight", "a.bias"}
    back = {"model": model(), "opt": None}
    back["opt"] = adam(back["model"])
    restored(world(), back)
    assert len(moments(back["opt"], back["model"])) == 4


class TestNames:
    """Which names they are."""

    def test_tied_parameters_have_their_first_name(self):
        """One memory, one state."""
        net = model()
        net["b"].weight = net["a"].weight
        state = {"model": net, "opt": stepped(adam(net), [net])}
        assert keys(state, "opt/members") == ["a.weight", "a.bias", "b.bias"]
        live = {"model": (other := model(seed=1)), "opt": None}
        other["b"].weight = other["a"].weight
        live["opt"] = adam(other)
        restored(state, live)
        assert equal(moments(live["opt"], other), moments(state["opt"], net))

    def test_two_modules_with_the_same_names_are_told_apart_by_their_paths(self):
        """Only those of them that one optimizer has; a copy for averages changes no name."""
        one, other, average = (model(seed=n) for n in range(3))
        both = torch.optim.AdamW([*one.parameters(), *other["a"].parameters()])
        nets = {"g": one, "d": [other], "ema": average}
        assert keys({"nets": nets, "opt": both}, "opt/members") == [
            "nets/g.a.weight",
            "nets/g.a.bias",
            "b.weight",
            "b.bias",
            "nets/d/0.a.weight",
            "nets/d/0.a.bias",
        ]
        assert keys({"nets": nets, "opt": adam(one)}, "opt/members") == NAMES

    def test_a_part_saved_as_a_stage_restores_without_and_back(self):
        """A name with more or less of its path finds the parameter."""
        source = world()
        live = {"s": {"deep": world(seed=2)}}
        staged = {"s": {"deep": Stage(dict(source))}}
        assert keys(staged, "s/deep/opt/members")[0] == "model.a.weight"
        restored(staged, live)
        there = live["s"]["deep"]
        assert equal(moments(there["opt"], there["model"]), moments(source["opt"], source["model"]))
        back = {"s": {"deep": Stage(world(seed=3))}}
        restored(live, back)
        there = back["s"]["deep"].value
        assert equal(moments(there["opt"], there["model"]), moments(source["opt"], source["model"]))

    def test_the_optimizers_own_names_serve_where_no_module_is_there(self):
        """Made of named_parameters(); wrappers' parts of names left out."""
        first, second = model(), model(names="ba", seed=1)
        named = torch.optim.AdamW((f"_orig_mod.{name}", p) for name, p in first.named_parameters())
        source = {"opt": stepped(named, [first])}
        assert keys(source, "opt/members") == NAMES
        live = {"opt": torch.optim.AdamW(second.named_parameters())}
        restored(source, live)
        assert equal(moments(live["opt"], second), moments(source["opt"], first))
        assert live["opt"].param_groups[0]["param_names"][0] == "b.weight"

    def test_the_modules_names_come_before_the_optimizers_own(self):
        """And the latter are looked for when these are not in the checkpoint."""
        first, second = model(), model(seed=1)
        named = torch.optim.AdamW((f"x.{name}", p) for name, p in first.named_parameters())
        stepped(named, [first])
        assert keys({"m": first, "opt": named}, "opt/members") == NAMES
        own = ((f"_orig_mod.x.{name}", p) for name, p in second.named_parameters())
        live = {"m": second, "opt": torch.optim.AdamW(own)}
        fill(match(live, saved({"m": first, "opt": named})[0]), saved({"m": first, "opt": named})[1])
        alone = {"opt": torch.optim.AdamW((f"x.{n}", p) for n, p in second.named_parameters())}
        entries, kept = saved({"opt": named})
        both = {"opt": live["opt"], "m": second}
        fill(match(both, entries, strict=False, skip=["m"]), kept)
        assert equal(moments(live["opt"], second), moments(named, first))
        fill(match(alone, entries), kept)

    def test_a_parameter_has_the_name_that_is_met_first(self):
        """Of a module that stands in the state twice; the optimizer's own where no module there has it."""
        net = model()
        state = {"m": net["a"], "all": net, "opt": torch.optim.AdamW(net.named_parameters())}
        assert keys(state, "opt/members") == ["weight", "bias", "b.weight", "b.bias"]
        assert keys({"m": net["a"], "opt": state["opt"]}, "opt/members") == ["weight", "bias", *NAMES[2:]]

    def test_a_parameter_without_a_name_leaves_all_by_position(self):
        """As torch has it, with no module in the state or not of all parameters."""
        net = model()
        loose = torch.nn.Parameter(torch.ones(2))
        opt = stepped(torch.optim.AdamW([*net.parameters(), loose]), [net])
        assert keys({"model": net, "opt": opt}, "opt") == ["state", "param_groups"]
        assert keys({"opt": adam(net)}, "opt") == ["state", "param_groups"]


class TestByPosition:
    """Where one of both sides has no names."""

    def test_a_checkpoint_by_position_restores_into_an_optimizer_with_names(self):
        """Older ones are such; the order is the live one's."""
        source = world()
        entries, kept = saved({"opt": source["opt"]})
        live = {"model": (net := model(seed=1)), "opt": adam(net)}
        fill(match({"opt": live["opt"], "model": net}, entries, strict=False, skip=["model"]), kept)
        assert equal(moments(live["opt"], net), moments(source["opt"], source["model"]))

    def test_a_checkpoint_by_name_restores_into_an_optimizer_without_names(self):
        """In the saved order, where the groups have the same sizes."""
        source = world()
        entries, kept = saved(source)
        net = model(seed=1)
        opt = adam(net)
        fill(match({"opt": opt, "model": None}, entries, strict=False, skip=["model"]), kept)
        assert equal(moments(opt, net), moments(source["opt"], source["model"]))
        small = torch.optim.AdamW(net["a"].parameters())
        with pytest.raises(
            RestoreMismatch,
            match=r"names are not known, in groups of sizes \[2\]; the checkpoint has .* \[4\]",
        ):
            match({"opt": small, "model": None}, entries, strict=False, skip=["model"])

    def test_a_load_gives_the_state_dict_that_torch_takes(self):
        """With numbers for the parameters, and their names in the groups."""
        source = world()
        made = loaded(source)["opt"]
        assert made["param_groups"][0]["params"] == [0, 1, 2, 3]
        assert made["param_groups"][0]["param_names"] == NAMES
        net = model()
        opt = adam(net)
        opt.load_state_dict(made)
        assert equal(moments(opt, net), moments(source["opt"], source["model"]))

    def test_nothing_takes_an_optimizers_state_but_an_optimizer(self):
        """A place kept for anything plain does not."""
        with pytest.raises(
            RestoreMismatch, match="opt is the state of an optimizer, and the state has no such"
        ):
            match({"opt": None, "model": None}, saved(world())[0], strict=False, skip=["model"])


class TestStages:
    """An optimizer on each rank of a pipeline."""

    def part(self, net, *names, used=0, opt=adam):
        """A rank with some layers of the net."""
        part = torch.nn.ModuleDict({name: net[name] for name in names})
        optimizer = opt(part)
        if used:
            stepped(optimizer, [part], seed=used)
        return {"model": Stage(part), "opt": Stage(optimizer)}

    def test_two_ranks_restore_as_one_and_back(self):
        """The union has all parameters; each rank takes its own."""
        net = model()
        ranks = [self.part(net, name, used=n + 1) for n, name in enumerate("ab")]
        whole = {"model": (other := model(seed=3)), "opt": adam(other)}
        restored_by(ranks, [whole])
        for name, rank in zip("ab", ranks, strict=True):
            part = moments(rank["opt"].value, rank["model"].value)
            assert equal(part, {k: v for k, v in moments(whole["opt"], other).items() if k[0] == name})
        third = model(seed=4)
        back = [self.part(third, name) for name in "ba"]
        coverages = restored_by([whole], back)
        for rank in back:
            part = moments(rank["opt"].value, rank["model"].value)
            assert equal(part, {k: v for k, v in moments(whole["opt"], other).items() if k in part})
        assert all(coverage.unexpected == () for coverage in coverages)

    def test_a_load_gives_one_optimizer(self):
        """By position over all ranks."""
        net = model()
        made = loaded_from(*(self.part(net, name, used=1) for name in "ab"))["opt"]
        assert made["param_groups"][0]["param_names"] == NAMES
        opt = adam(net)
        opt.load_state_dict(made)
        assert len(moments(opt, net)) == 4

    def test_a_stage_of_everything_names_as_its_modules_do(self):
        """Chunks with the same names below a stage are told apart by their keys, on every rank alike."""
        nets = [model(seed=n) for n in range(2)]
        ranks = [
            {"s": Stage({"m": {str(n): net}, "opt": stepped(adam(net), [net])})} for n, net in enumerate(nets)
        ]
        lives = [{"s": Stage({"m": {str(n): (net := model(seed=5))}, "opt": adam(net)})} for n in range(2)]
        assert keys(ranks[1], "s/opt/members") == [f"m/1.{name}" for name in NAMES]
        restored_by(ranks, lives)
        for n, (rank, live) in enumerate(zip(ranks, lives, strict=True)):
            source = moments(rank["s"].value["opt"], nets[n])
            assert equal(moments(live["s"].value["opt"], live["s"].value["m"][str(n)]), source)

    def test_a_parameter_that_no_rank_saved_is_told(self):
        """By name; what other ranks have is theirs."""
        net = model(names="abc")
        with pytest.raises(RestoreMismatch, match=r"opt has the parameter b\.weight in the state and not in"):
            match(self.part(net, "b"), saved(self.part(net, "a", used=1))[0])

    def test_parameters_without_names_are_refused(self):
        """Positions of several ranks say nothing; on both ways."""
        net = model()
        with pytest.raises(UnsupportedLeaf, match=r"opt is of .* in a Stage, and the names"):
            flatten({"opt": Stage(adam(net))})
        entries, _ = saved(self.part(net, "a", used=1))
        with pytest.raises(
            RestoreMismatch, match="opt has parameters in the state whose names are not known; put"
        ):
            match({"opt": adam(net["a"]), "model": None}, entries, strict=False, skip=["model"])

    def test_lbfgs_is_refused(self):
        """Its state is of all parameters in order."""
        with pytest.raises(UnsupportedLeaf, match="all parameters in order"):
            flatten(self.part(model(), "a", opt=lambda part: torch.optim.LBFGS(part.parameters())))


def test_lbfgs_in_another_order_is_a_mismatch():
    """Its directions run over all parameters as they come."""
    nets = [model(), model(), model(names="ba")]
    states = [{"model": net, "opt": torch.optim.LBFGS(net.parameters())} for net in nets]
    restored(states[0], states[1])
    with pytest.raises(RestoreMismatch, match="LBFGS"):
        restored(states[0], states[2])


def test_an_optimizer_with_state_of_its_own_form_stays_as_it_is():
    """One whose state dict has more than torch's goes by position."""

    class More(torch.optim.SGD):
        def state_dict(self):
            return {**super().state_dict(), "more": 1}

    net = model()
    state = {"model": net, "opt": More(net.parameters())}
    assert keys(state, "opt") == ["state", "param_groups", "more"]
    restored(state, {"model": net, "opt": More(net.parameters())})


def test_a_state_that_contains_itself_is_refused_as_such():
    """Also when an optimizer stands before the loop, whose names are looked for everywhere."""
    state = world()
    loop = {"optimizer": state["opt"], "again": []}
    loop["again"].append(loop)
    with pytest.raises(UnsupportedLeaf, match="it contains itself"):
        flatten(loop)


def test_state_that_is_of_no_parameter_leaves_all_by_position():
    """A name for it could be a parameter's."""
    state = world()
    state["opt"].state["a.weight"] = {"exp_avg": torch.ones(1)}
    assert keys(state, "opt") == ["state", "param_groups"]
    live = world(seed=4)
    restored(state, live)
    assert equal(moments(live["opt"], live["model"]), moments(state["opt"], state["model"]))
    assert torch.equal(live["opt"].state["a.weight"]["exp_avg"], torch.ones(1))


def test_a_partitioned_optimizer_is_refused_with_what_to_do():
    """ZeroRedundancyOptimizer: its inner optimizer goes by name."""

    class ZeroRedundancyOptimizer(torch.optim.SGD):
        pass

    net = model()
    with pytest.raises(UnsupportedLeaf, match="each rank has the state of some parameters") as caught:
        flatten({"model": net, "opt": ZeroRedundancyOptimizer(net.parameters())})
    assert "es.Stage(optimizer.optim)" in caught.value.hint


def test_pieces_of_flattened_parameters_are_refused_with_what_to_do():
    """FSDP 1 marks them: a piece of one size on all ranks would look like a replica."""
    net = model()
    state = {"model": net, "opt": adam(net)}
    entries, _ = saved(state)
    net["b"].weight._fsdp_flattened = True
    with pytest.raises(UnsupportedLeaf, match="FSDP 1 has flattened") as caught:
        flatten(state)
    assert "fully_shard" in caught.value.hint
    with pytest.raises(RestoreMismatch, match="FSDP 1 has flattened"):
        match(state, entries)
