"""What a policy keeps and deletes, with reasons: golden decisions, and what holds for all of them."""

import datetime as dt
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from everstep.errors import UsageError
from everstep.format.ids import SaveId
from everstep.format.records import Parent
from everstep.repository.checkpoint import Checkpoint
from everstep.retention import Candidate, Policy, choose, parse_keep

GOLDEN = sorted((Path(__file__).parent / "golden").glob("*.json"))


def candidate(
    step, attempt=1, created=0.0, *, metrics=None, tags=(), stored_bytes=0, forked_from=None, nonce=0, **more
):
    """A checkpoint as the catalogue and the marks describe it."""
    packs = more.pop("packs", None)
    return Candidate(
        checkpoint=Checkpoint(
            run="digits",
            save=SaveId(step=step, attempt=attempt, nonce=f"{nonce:032x}"),
            created=created,
            bytes=stored_bytes,
            stored_bytes=stored_bytes,
            world=1,
            metrics=metrics or {},
            tags=tuple(tags),
            manifest="0" * 64,
            manifest_size=1,
            forked_from=forked_from,
        ),
        verified=more.get("verified", False),
        pinned_by=tuple(more.get("pinned_by", ())),
        packs=None if packs is None else frozenset(packs),
    )


def seconds(written):
    """Seconds since 1970, of a time as the golden files have it."""
    return dt.datetime.fromisoformat(written).timestamp() if isinstance(written, str) else float(written)


def decided(world, policy):
    """A line for each checkpoint, as the golden files have it; or the error."""
    candidates = [
        candidate(
            **{
                **one,
                "created": seconds(one["created"]),
                "forked_from": Parent(**one["forked_from"]) if "forked_from" in one else None,
            }
        )
        for one in world["checkpoints"]
    ]
    try:
        choice = choose(
            candidates,
            parse_keep(policy),
            now=seconds(world["now"]),
            pack_bytes=world.get("packs", {}),
            price_per_gb_month=world.get("price"),
        )
    except UsageError as error:
        return [f"refused: {error.message}", f"hint: {error.hint}"]
    lines = [
        f"{one.checkpoint.step} of attempt {one.checkpoint.attempt}"
        f" {'kept' if one.keep else 'DELETED'}: {'; '.join(one.reasons)}"
        for one in choice.verdicts
    ]
    return lines + [f"note: {note}" for note in choice.notes]


@pytest.mark.parametrize(
    ("path", "policy"),
    [
        pytest.param(path, policy, id=f"{path.stem}: {policy}")
        for path in GOLDEN
        for policy in json.loads(path.read_text())["policies"]
    ],
)
def test_decisions_are_as_they_were_looked_at(path, policy):
    """Each history and policy of the golden files gives the same decisions, with the same reasons."""
    world = json.loads(path.read_text())
    assert decided(world, policy) == world["policies"][policy], world["about"]


def test_there_are_enough_golden_decisions():
    """So that none is lost by a file that is not found."""
    assert sum(len(json.loads(path.read_text())["policies"]) for path in GOLDEN) >= 90


candidates = st.lists(
    st.builds(
        candidate,
        st.integers(0, 30),
        st.integers(0, 3),
        st.floats(0, 4e9) | st.sampled_from([1e300, 0.0]),
        metrics=st.dictionaries(
            st.sampled_from(["loss", "f1"]),
            st.floats() | st.integers(-3, 3) | st.none() | st.text(max_size=2) | st.booleans(),
        ),
        tags=st.sampled_from([(), (), (), ("best",)]),
        verified=st.booleans(),
        pinned_by=st.sampled_from([(), (), (), ("host",)]),
        packs=st.none() | st.sets(st.sampled_from("abcdef")),
        stored_bytes=st.integers(0, 9),
        nonce=st.integers(0, 10**9),
    ),
    max_size=20,
    unique_by=lambda one: one.checkpoint.save,
)
rules = st.sampled_from(
    ["last 2", "every 5", "every 7", "daily 2", "hourly 3", "weekly 2", "monthly 2", "within 48h", "tagged"]
)
budgets = st.sampled_from(["at most 12B", "at most 1B", "at most $3"])
PACKS = dict(zip("abcdef", (1, 2, 4, 8, 16, 32), strict=True))


def chosen(given_candidates, written, now=2e9):
    """The choice, with the packs and a price that makes one dollar ten bytes."""
    return choose(
        given_candidates, parse_keep(written), now=now, pack_bytes=PACKS, price_per_gb_month=2**30 / 10
    )


@given(candidates, st.lists(rules | budgets, min_size=1, unique=True), st.randoms())
def test_what_protections_keep_no_rule_takes(given_candidates, written, random):
    """Newest, newest verified, tagged, being read; whatever the order of the list; all deleted have a reason."""
    written = written if sum(one.startswith("at most") and "B" in one for one in written) < 2 else "last 1"
    choice = chosen(given_candidates, written)
    mixed = list(given_candidates)
    random.shuffle(mixed)
    assert chosen(mixed, written) == choice
    assert len(choice.verdicts) == len(given_candidates)
    assert all(one.reasons for one in choice.verdicts)
    kept = set(map(id, choice.kept))
    ordered = [one.checkpoint for one in choice.verdicts]
    assert not ordered or id(ordered[0]) in kept
    verified = {id(one.checkpoint) for one in given_candidates if one.verified}
    assert next((id(one) in kept for one in ordered if id(one) in verified), True)
    assert all(id(one.checkpoint) in kept for one in given_candidates if one.pinned_by or one.checkpoint.tags)


@given(candidates, st.lists(rules, min_size=1, unique=True), rules)
def test_a_rule_more_never_deletes_more(given_candidates, written, more):
    """The rules are a union."""
    fewer = chosen(given_candidates, written)
    assert {one.save for one in fewer.kept} <= {
        one.save for one in chosen(given_candidates, [*written, more]).kept
    }


@given(candidates, st.lists(rules, unique=True), budgets)
def test_a_budget_is_kept_or_said_not_to_be(given_candidates, written, budget):
    """What is kept fits, each pack counted once, or only what is protected is left and a note says so."""
    choice = chosen(given_candidates, [*written, budget])
    allowed = 30 if "$" in budget else int(budget.removeprefix("at most ").removesuffix("B"))
    by_save = {one.checkpoint.save: one for one in given_candidates}
    kept = [by_save[one.save] for one in choice.kept]
    held = sum(PACKS[pack] for pack in set().union(*(one.packs or () for one in kept)))
    held += sum(one.checkpoint.stored_bytes for one in kept if one.packs is None)
    assert held <= allowed or choice.notes
    assert {one.save for one in choice.kept} <= {
        one.save for one in (chosen(given_candidates, written).kept if written else choice.kept)
    }


@given(
    candidates,
    st.lists(rules | budgets.filter(lambda one: "$" not in one), min_size=1, max_size=3, unique=True),
)
def test_a_second_prune_deletes_nothing(given_candidates, written):
    """A choice of what a choice kept keeps all of it: a prune after each commit erodes nothing."""
    if sum(one.startswith("at most") for one in written) > 1:
        return
    kept = {one.save for one in chosen(given_candidates, written).kept}
    again = chosen([one for one in given_candidates if one.checkpoint.save in kept], written)
    assert not again.deleted


@given(candidates, rules, st.floats(0, 4e9))
def test_a_clock_that_runs_behind_deletes_nothing_more(given_candidates, written, now):
    """What is kept when it is late is kept as well when the clock says that it is early."""
    late = {one.save for one in chosen(given_candidates, written, now=now).kept}
    early = {one.save for one in chosen(given_candidates, written, now=now / 2).kept}
    assert late <= early


def test_best_of_a_metric_that_any_checkpoint_has():
    """Those without it are not best, and are kept or not by the other rules."""
    some = [candidate(1, metrics={"loss": 1.0}), candidate(2), candidate(3, metrics={"other": 1})]
    choice = choose(some, parse_keep("best 1 by loss"), now=0.0)
    assert [one.step for one in choice.kept] == [3, 1]


def test_no_policy_keeps_everything_and_asks_for_nothing():
    """Neither metrics nor prices nor packs are needed."""
    choice = choose([candidate(1), candidate(2)], Policy(), now=0.0)
    assert not choice.deleted
    assert choice.verdicts[1].reasons == ("all",)


def test_thousands_are_chosen_from_at_once():
    """The work grows with their number, not with its square, which would run into the suite's time limit."""
    many = [
        candidate(
            step,
            created=step * 60.0,
            metrics={"loss": (step * 7919) % 10007},
            packs=[str(step), str(step // 10), "frozen"],
        )
        for step in range(20000)
    ]
    sizes = {str(step): 1 for step in range(20000)} | {"frozen": 1000}
    choice = choose(
        many,
        parse_keep("last 10, best 5 by loss, every 100, hourly 100, daily 30, within 5h, at most 1200B"),
        now=1e9,
        pack_bytes=sizes,
    )
    assert 10 < len(choice.kept) < 300
