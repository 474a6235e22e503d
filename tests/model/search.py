"""A search through everything that some programs can do to one store, in every order.

A program is a generator: each ``yield`` is one request to the store, and what it is sent is the answer. Any program
may stand still for ever after any request, which is what a crash, a pause and a slow machine look like to the others; `choose`
lets a time-out fire or a clock be wrong at any moment. So no clock is assumed.

A program's state is where its frames stand and what their variables hold; equal states are one. So what decides the
rest of a program must stand in variables: no request inside an expression, and loops over what does not change.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Hashable, Mapping
from typing import Any, NamedTuple

__all__ = [
    "Ask",
    "Found",
    "Key",
    "Listing",
    "Objects",
    "Program",
    "alone",
    "choose",
    "create",
    "delete",
    "explore",
    "get",
    "listed",
]

Key = tuple[str, str, str]
"""Kind, run and name of an object: ``("plan", "a", "S1")``."""

Objects = Mapping[Key, Any]
Notes = Mapping[Key, Any]


class Ask(NamedTuple):
    """One request. ``note`` says what is promised once it was answered: objects beside the store's, None to take back."""

    words: str
    act: Callable[[Objects], tuple[Any, Notes]]
    note: Callable[[Any], Notes] | None = None
    options: tuple[Hashable, ...] = ()


Program = Generator[Ask, Any, None]


def create(
    *key: str, value: Hashable = "", note: Callable[[Any], Notes] | None = None, over: bool = False
) -> Ask:
    """Create if absent; whether it was. ``over``: a store that overwrites."""

    def act(objects: Objects) -> tuple[bool, Notes]:
        return (False, {}) if key in objects and not over else (True, {key: value})

    return Ask(f"creates {'/'.join(key)} {value}", act, note)


def delete(*key: str, note: Callable[[Any], Notes] | None = None) -> Ask:
    """Delete; what is absent stays so."""
    return Ask(
        f"deletes {'/'.join(key)}", lambda objects: (None, {key: None} if key in objects else {}), note
    )


def get(*key: str, note: Callable[[Any], Notes] | None = None) -> Ask:
    """The object, or None."""
    return Ask(f"reads {'/'.join(key)}", lambda objects: (objects.get(key), {}), note)


def listed(
    kind: str,
    run: str = "",
    *,
    since: str = "",
    until: str = "~",
    note: Callable[[Any], Notes] | None = None,
) -> Ask:
    """Names and objects of one kind and run, in order: a page of a list, and reads of what never changes."""

    def act(objects: Objects) -> tuple[Listing, Notes]:
        names = sorted(at for at in objects if at[:2] == (kind, run) and since <= at[2] < until)
        return Listing({at[2]: objects[at] for at in names}), {}

    return Ask(f"lists {kind}/{run}/{since}", act, note)


def choose(what: str, *options: Hashable) -> Ask:
    """Any of these: no request, but what nobody can foresee."""
    return Ask(what, lambda _objects: (None, {}), None, options)


class Listing(dict[str, Any]):
    """Names and objects of a list, in order; never changed, so that it can be part of a state."""

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(tuple(self.items()))


class Found(NamedTuple):
    """The outcome of a search: the promise that was broken, if any, the way there, how many worlds and stores."""

    wrong: str
    way: tuple[str, ...]
    states: int
    stores: int


def alone(program: Program, objects: Objects) -> Objects:
    """The store after this program has run with nobody beside it, by the last option wherever it may choose."""
    answer = None
    while True:
        try:
            ask = program.send(answer)
        except StopIteration:
            return objects
        answer, changes = ask.act(objects)
        if ask.options:
            answer = ask.options[-1]
        objects = {key: value for key, value in {**objects, **changes}.items() if value is not None}


class _Locals:
    """The states of one program: where its frames stand and what they hold."""

    def __init__(self, start: Callable[[], Program], *, merged: bool) -> None:
        self._start, self._merged = start, merged
        self._numbers: dict[Hashable, int] = {("ended",): 0}
        self._ways: list[tuple[Any, ...]] = [()]
        self.asks: list[Ask | None] = [None]
        self._next: dict[tuple[int, Any], int] = {}
        self.first = self._reach(())

    def after(self, number: int, answer: Any) -> int:
        """The state after this answer to the state's request."""
        if (found := self._next.get((number, answer))) is None:
            found = self._next[number, answer] = self._reach((*self._ways[number], answer))
        return found

    def _reach(self, answers: tuple[Any, ...]) -> int:
        program = self._start()
        try:
            ask = next(program)
            for answer in answers:
                ask = program.send(answer)
        except StopIteration:
            return 0
        at = _place(program) if self._merged else answers
        if (number := self._numbers.get(at)) is None:
            number = self._numbers[at] = len(self.asks)
            self.asks.append(ask)
            self._ways.append(answers)
        return number


def _place(program: Any) -> Hashable:
    place: list[Hashable] = []
    while program is not None:
        frame = program.gi_frame
        place.append(
            (
                id(program.gi_code),
                frame.f_lasti,
                tuple(sorted(frame.f_locals.items(), key=lambda item: item[0])),
            )
        )
        program = program.gi_yieldfrom
    return tuple(place)


def explore(
    cast: Mapping[str, Callable[[], Program]],
    first: Objects,
    broken_promise: Callable[[Objects, Objects], str],
    *,
    merged: bool = True,
) -> Found:
    """Visit every state that the cast can reach, breadth first; stop at the first that breaks a promise.

    ``broken_promise`` is asked once for each change of the store, with what it was before. Not ``merged``, the state
    of a program is all that it was answered: many more states, and nothing to be wrong about.
    """
    names, programs = tuple(cast), tuple(_Locals(start, merged=merged) for start in cast.values())
    stores: dict[frozenset[tuple[Key, Any]], int] = {}
    objects: list[Objects] = []

    def store(held: dict[Key, Any]) -> int:
        frozen = frozenset(held.items())
        if (number := stores.get(frozen)) is None:
            number = stores[frozen] = len(objects)
            objects.append(held)
        return number

    moves: dict[tuple[int, int, int], tuple[tuple[int, int, str], ...]] = {}

    def moves_of(i: int, state: int, at: int) -> tuple[tuple[int, int, str], ...]:
        program, ask, before = programs[i], programs[i].asks[state], objects[at]
        if ask is None:
            return ()
        if ask.options:
            return tuple((program.after(state, option), at, "") for option in ask.options)
        answer, changes = ask.act(before)
        if ask.note is not None:
            changes = {**changes, **ask.note(answer)}
        after, wrong = at, ""
        if changes:
            held = {**before, **changes}
            after = store({key: value for key, value in held.items() if value is not None})
            wrong = broken_promise(before, objects[after])
        return ((program.after(state, answer), after, wrong),)

    start = (store(dict(first)), *(program.first for program in programs))
    if wrong := broken_promise({}, objects[start[0]]):
        return Found(wrong, (), 1, 1)
    came: dict[tuple[int, ...], tuple[int, ...] | None] = {start: None}
    waiting = deque([start])
    while waiting:
        world = waiting.popleft()
        at = world[0]
        for i in range(len(programs)):
            state = world[i + 1]
            if not state:
                continue
            if (steps := moves.get((i, state, at))) is None:
                steps = moves[i, state, at] = moves_of(i, state, at)
            for next_state, next_at, wrong in steps:
                after = (next_at, *world[1 : i + 1], next_state, *world[i + 2 :])
                if after in came:
                    continue
                came[after] = world
                if wrong:
                    return Found(wrong, _way(came, after, names, programs), len(came), len(objects))
                waiting.append(after)
    return Found("", (), len(came), len(objects))


def _way(
    came: Mapping[tuple[int, ...], tuple[int, ...] | None],
    world: tuple[int, ...],
    names: tuple[str, ...],
    programs: tuple[_Locals, ...],
) -> tuple[str, ...]:
    way: list[str] = []
    while (before := came[world]) is not None:
        i = next(i for i in range(len(names)) if before[i + 1] != world[i + 1])
        ask = programs[i].asks[before[i + 1]]
        assert ask is not None
        words = [
            f" {option}" for option in ask.options if programs[i].after(before[i + 1], option) == world[i + 1]
        ]
        way.append(f"{names[i]}: {ask.words}{''.join(words)}")
        world = before
    return tuple(reversed(way))
