"""Requests for a save: what people ask of the training that runs now, and its answers.

A request is an object that is created once, its answer another one beside it. No clock is compared but the store's
own, and nothing that is committed depends on either.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from everstep.errors import AlreadyExists, CorruptObject, InvalidName, ObjectNotFound
from everstep.format.ids import SaveId, parse_run, parse_save
from everstep.format.limits import FORMAT_MAJOR
from everstep.format.records import AnswerRecord, RequestRecord
from everstep.format.wire import to_bytes
from everstep.repository.keys import request_key, requests_prefix
from everstep.repository.objects import create_same, listed, read_record
from everstep.repository.repository import Repository
from everstep.store.protocol import Listed

__all__ = ["answer", "answered", "ask", "owner_of", "tidy", "waiting", "withdraw"]

_REQUEST = re.compile(r"[0-9a-f]{32}")
_NAME = re.compile(r"([0-9a-f]{32})(\.answer)?\.json")
_KEPT_S = 86_400.0
_MOST = 10_000
"""Entries that one look reads: should something fill the folder, the training does not drown in it."""


def ask(repo: Repository, run: str, *, owner: str) -> str:
    """Ask whoever trains this run for a save, for ``owner`` (for people); gives the request's name. One request."""
    request = repo.entropy(16)
    record = RequestRecord(
        format=FORMAT_MAJOR, run=parse_run(run), request=request, owner=owner, created=repo.clock()
    )
    create_same(repo.store, request_key(run, request), to_bytes(record))
    return request


def waiting(repo: Repository, run: str) -> tuple[str, ...]:
    """The requests that have no answer, the oldest by the store's clock first; one list."""
    entries = dict(_entries(repo, run))
    unanswered = [
        (found.modified, request)
        for (request, is_answer), found in entries.items()
        if not is_answer and (request, True) not in entries
    ]
    return tuple(request for _, request in sorted(unanswered))


def tidy(repo: Repository, run: str) -> int:
    """Remove requests that were answered long ago, with their answers, and say how many; a list, and two calls each.

    Long ago is a day before the newest entry, by the store's clock: whoever waited for an answer has seen it. The
    request goes first, so that it never seems to wait again.
    """
    entries = dict(_entries(repo, run))
    newest = max((found.modified for found in entries.values()), default=0.0)
    old = [
        name
        for (name, is_answer), found in entries.items()
        if is_answer and newest - found.modified > _KEPT_S
    ]
    for request in old:
        repo.store.delete(request_key(run, request))
        repo.store.delete(request_key(run, request, answer=True))
    return len(old)


def owner_of(repo: Repository, run: str, request: str) -> str:
    """Who asked, as they called themselves. Raises `ObjectNotFound` when it was withdrawn, `CorruptObject`."""
    key = request_key(run, _checked(request))
    record = read_record(repo.store, key, RequestRecord)
    _match(key, record, run, request)
    return record.owner


def answer(repo: Repository, run: str, request: str, save: SaveId) -> None:
    """Tell the one who asked which checkpoint came of it. An answer that stands already is left as it is."""
    record = AnswerRecord(format=FORMAT_MAJOR, run=run, request=_checked(request), save=str(save))
    try:
        create_same(repo.store, request_key(run, request, answer=True), to_bytes(record))
    except AlreadyExists:
        return


def answered(repo: Repository, run: str, request: str) -> SaveId | None:
    """The save that was made for a request, or None while there is no answer; one request."""
    key = request_key(run, _checked(request), answer=True)
    try:
        record = read_record(repo.store, key, AnswerRecord)
    except ObjectNotFound:
        return None
    _match(key, record, run, request)
    return parse_save(record.save)


def withdraw(repo: Repository, run: str, request: str) -> SaveId | None:
    """Take a request back, with its answer; gives the save if it was answered before. The last call for it."""
    repo.store.delete(request_key(run, _checked(request)))
    save = answered(repo, run, request)
    if save is not None:
        repo.store.delete(request_key(run, request, answer=True))
    return save


def _entries(repo: Repository, run: str) -> Iterator[tuple[tuple[str, bool], Listed]]:
    """Each request and each answer; what is neither is passed over."""
    prefix = requests_prefix(parse_run(run))
    for number, found in enumerate(listed(repo.store, prefix)):
        if number == _MOST:
            return
        name = _NAME.fullmatch(found.key.removeprefix(prefix))
        if name:
            yield (name[1], bool(name[2])), found


def _checked(request: str) -> str:
    if _REQUEST.fullmatch(request) is None:
        raise InvalidName(f"{request!r} is not the name of a request", name=request)
    return request


def _match(key: str, record: RequestRecord | AnswerRecord, run: str, request: str) -> None:
    if (record.run, record.request) != (run, request):
        raise CorruptObject(f"{key} holds the request {record.request!r} of run {record.run!r}", key=key)
