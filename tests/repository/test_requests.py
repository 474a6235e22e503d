"""Requests for a save: created once, answered once, taken back; what is no request is passed over."""

import pytest

from everstep.errors import CorruptObject, InvalidName, ObjectNotFound
from everstep.format.ids import SaveId
from everstep.repository.keys import request_key, requests_prefix
from everstep.repository.requests import answer, answered, ask, owner_of, tidy, waiting, withdraw
from everstep.store.count import Count
from everstep.store.memory import MemoryStore
from tests.repository.worlds import keys, overwrite, plant, world

SAVE = SaveId(step=7, attempt=1, nonce="0" * 32)
OTHER = SaveId(step=8, attempt=1, nonce="1" * 32)
DAY_S = 86_400


class Clock:
    """The store's clock."""

    now = 1000.0

    def __call__(self):
        return self.now


def test_what_is_asked_waits_until_it_is_answered():
    """The oldest by the store's clock stands first, whatever its name; an answer takes it out of the list."""
    clock = Clock()
    repo = world(MemoryStore(clock=clock))
    clock.now = 2000.0
    later = ask(repo, "run", owner="ada@here")
    clock.now = 1500.0
    earlier = ask(repo, "run", owner="bob@there")
    assert later < earlier
    assert waiting(repo, "run") == (earlier, later)
    assert waiting(repo, "other") == ()
    assert owner_of(repo, "run", earlier) == "bob@there"
    assert answered(repo, "run", earlier) is None
    answer(repo, "run", earlier, SAVE)
    assert waiting(repo, "run") == (later,)
    assert answered(repo, "run", earlier) == SAVE


def test_the_first_answer_stands():
    """A second launch that answers too changes nothing, and gets no error."""
    repo = world()
    request = ask(repo, "run", owner="ada")
    for save in (SAVE, SAVE, OTHER):
        answer(repo, "run", request, save)
    assert answered(repo, "run", request) == SAVE


def test_a_request_is_taken_back_with_its_answer():
    """Nothing is left of it; who takes it back too late learns which save it got."""
    repo = world()
    before = keys(repo.store)
    assert withdraw(repo, "run", ask(repo, "run", owner="ada")) is None
    request = ask(repo, "run", owner="ada")
    answer(repo, "run", request, SAVE)
    assert withdraw(repo, "run", request) == SAVE
    assert keys(repo.store) == before
    with pytest.raises(ObjectNotFound):
        owner_of(repo, "run", request)


def test_what_is_no_request_is_passed_over():
    """A file manager's droppings, other cases, other runs' records under a name: none of them waits."""
    repo = world()
    prefix = requests_prefix("run")
    for name in (
        ".DS_Store",
        "a" * 31 + ".json",
        "A" * 32 + ".json",
        "a" * 32,
        "b" * 32 + ".answer.json.tmp",
    ):
        plant(repo.store, prefix + name)
    assert waiting(repo, "run") == ()
    plant(repo.store, f"{prefix}{'c' * 32}.answer.json")
    assert waiting(repo, "run") == ()


def test_a_damaged_request_waits_all_the_same():
    """It is answered by its name; only who asked is not known."""
    repo = world()
    request = ask(repo, "run", owner="ada")
    overwrite(repo.store, request_key("run", request), b"{}")
    assert waiting(repo, "run") == (request,)
    with pytest.raises(Exception, match=request):
        owner_of(repo, "run", request)
    other = ask(repo, "run", owner="ada")
    body = repo.store.get(request_key("run", other), 10_000)
    overwrite(repo.store, request_key("run", request), body)
    with pytest.raises(CorruptObject, match=request):
        owner_of(repo, "run", request)


@pytest.mark.parametrize("name", ["", "x", "../../etc/passwd", "a" * 32 + ".answer"])
def test_a_name_that_is_none_is_refused(name):
    """No other key can be reached through a request's name."""
    repo = world()
    for call in (answered, withdraw, owner_of):
        with pytest.raises(InvalidName):
            call(repo, "run", name)


def test_what_was_answered_long_ago_is_removed():
    """A day before the newest entry, by the store's clock; what waits stays, however old it is."""
    clock = Clock()
    repo = world(MemoryStore(clock=clock))
    begin = keys(repo.store)
    old, open_ = ask(repo, "run", owner="ada"), ask(repo, "run", owner="bob")
    answer(repo, "run", old, SAVE)
    assert tidy(repo, "run") == 0
    clock.now += DAY_S - 1
    young = ask(repo, "run", owner="eve")
    answer(repo, "run", young, SAVE)
    assert tidy(repo, "run") == 0
    clock.now += 2
    last = ask(repo, "run", owner="eve")
    assert tidy(repo, "run") == 1
    left = {open_, young, last}
    assert {key for key in keys(repo.store) if key not in begin} == {
        *(request_key("run", one) for one in left),
        request_key("run", young, answer=True),
    }


def test_what_each_costs():
    """One call to ask, to look, to answer and to hear; withdrawing takes a delete and a look."""
    store = Count(MemoryStore())
    repo = world(store)
    store.clear()
    request = ask(repo, "run", owner="ada")
    waiting(repo, "run")
    answer(repo, "run", request, SAVE)
    answered(repo, "run", request)
    assert [verb for verb, _ in store.log] == ["create", "list", "create", "get"]
    store.clear()
    withdraw(repo, "run", request)
    assert [verb for verb, _ in store.log] == ["delete", "get", "delete"]
