"""What the storage library raises, in our words: key, store and status, and nothing that was signed with."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from everstep.errors import (
    AccessDenied,
    AlreadyExists,
    Archived,
    EverstepError,
    NotFound,
    ObjectNotFound,
    ShortRead,
    StoreError,
    StoreFull,
    StoreUnavailable,
    UnsuitableStore,
)
from everstep.store.target import Target

__all__ = ["NOWHERE", "is_ours", "translate"]

NOWHERE = "http://127.0.0.1:0"
"""A proxy that cannot be there. Requests to other hosts than the endpoint's are sent to it: see `cloud`."""

_STATUS = re.compile(r"status code: (\d{3})|\(code: (\d{3})\)")
_CODE = re.compile(r"<Code>\s*([A-Za-z0-9.]{1,60})\s*</Code>")
_CAUSE = re.compile(r"kind: (Connect|Request|Timeout|Interrupted|Decode|Unknown)\b")
_RANGE = re.compile(r"non-partial response|Requested \d+\.\.\d+, got|(?i:content.range)|InvalidRange")

_EXISTS = frozenset(
    {"BlobAlreadyExists", "UnauthorizedBlobOverwrite", "PreconditionFailed", "conditionNotMet"}
)
_NO_CONTAINER = frozenset({"ContainerNotFound", "NoSuchBucket", "ResourceNotFound"})
_DENIED = frozenset(
    {"ExpiredToken", "InvalidToken", "InvalidAccessKeyId", "AuthorizationHeaderMalformed", "TokenRefreshRequired",
     "InvalidAuthenticationInfo", "AuthenticationFailed", "AccessDenied"}
)  # fmt: skip
_PASSING = frozenset(
    {
        "RequestTimeout",
        "BadDigest",
        "IncompleteBody",
        "SlowDown",
        "ServerBusy",
        "OperationTimedOut",
        "InternalError",
    }
)
_FULL = frozenset(
    {"QuotaExceeded", "AccountQuotaExceeded", "InsufficientStorage", "StorageFull", "XMinioStorageFull"}
)
_TOO_LARGE = frozenset({"EntityTooLarge", "RequestBodyTooLarge"})
_ARCHIVED = frozenset({"InvalidObjectState", "BlobArchived", "BlobBeingRehydrated"})
_CLASS = re.compile(r"<StorageClass>\s*([A-Z_]{1,40})\s*</StorageClass>")
_CONTAINER_WORD = {"azure": "container", "s3": "bucket", "gcs": "bucket"}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Answer:
    """What can be told of a failed request. ``text`` is the library's own and is never shown."""

    status: int
    code: str
    text: str
    told: str


def is_ours(error: BaseException) -> bool:
    """Whether the storage library raised this, its panics (no `Exception`) included."""
    module = type(error).__module__
    return module.startswith("obstore") or module == "pyo3_runtime" or isinstance(error, OSError)


def translate(error: BaseException, verb: str, key: str, target: Target) -> EverstepError:
    """The error that ``verb`` on ``key`` raises. The library's text is read for facts and never repeated."""
    fields = {"key": key, "url": target.url}
    what = f"{verb} {key!r} in {target.url}"
    if type(error).__module__ == "pyo3_runtime":
        return StoreError(
            f"{what}: the storage library stopped on its own error",
            hint=f"look at what it signs with: {target.credentials}; a token with a line end does this",
            **fields,
        )
    answer = _read(error)
    if NOWHERE.removeprefix("http://") in answer.text or 300 <= answer.status < 400:
        return UnsuitableStore(
            f"{what}: {target.endpoint.host} sends requests on to another host ({answer.told}), which is refused",
            hint="name the right endpoint; for S3 also the bucket's region, by AWS_REGION",
            host=target.endpoint.host,
            **fields,
        )
    if "token request" in answer.text or "Error getting credentials" in answer.text:
        return _no_token(answer, what, target)
    return _by_answer(error, answer, verb, what, target, fields)


def _read(error: BaseException) -> _Answer:
    text = str(error)
    status, code, cause = _STATUS.search(text), _CODE.search(text), _CAUSE.search(text)
    number = int(status[1] or status[2]) if status else 0
    name = code[1] if code else ""
    if number:
        told = f"answered {number} {name}".rstrip()
    else:
        told = {"Connect": "could not be reached", "Timeout": "did not answer in time"}.get(
            cause[1] if cause else "", "broke the connection"
        )
    return _Answer(status=number, code=name, text=text, told=told)


def _no_token(answer: _Answer, what: str, target: Target) -> EverstepError:
    fields = {"url": target.url}
    if answer.status == 429 or answer.status >= 500:
        return StoreUnavailable(
            f"{what}: the service that signs in {answer.told}", hint="it is tried again", **fields
        )
    return AccessDenied(
        f"{what}: no credentials could be had: the service that signs in {answer.told}",
        hint=f"used: {target.credentials}; set the cloud's own variables, see docs/guides/stores.md",
        **fields,
    )


def _by_answer(  # noqa: PLR0911, PLR0917  # one line for each answer a store can give
    error: BaseException,
    answer: _Answer,
    verb: str,
    what: str,
    target: Target,
    fields: Mapping[str, str],
) -> EverstepError:
    status, code, told = answer.status, answer.code, f"{what}: {target.endpoint.host} {answer.told}"
    if verb == "create" and (status == 412 or code in _EXISTS or (status == 409 and _is_taken(code, target))):
        return AlreadyExists(f"{what}: the key is taken", **fields)
    if code in _ARCHIVED:
        return _archived(answer, verb, what, target, fields)
    if status == 416 or _RANGE.search(answer.text):
        return ShortRead(
            f"{what}: the store answered with another range than was asked for",
            hint="it is tried again",
            **fields,
        )
    if status == 404 or isinstance(error, FileNotFoundError):
        return _missing(answer, verb, what, target, fields)
    if status in {401, 403} or code in _DENIED:
        return AccessDenied(told, hint=_access_hint(code, target), status=status, **fields)
    if status == 507 or code in _FULL:
        return StoreFull(told, hint="free space, or raise the quota", **fields)
    if status == 413 or code in _TOO_LARGE:
        return StoreError(
            f"{told}: the object is too large for one request", hint="save with more ranks", **fields
        )
    if status in {0, 408, 409, 425, 429} or (status >= 500 and status != 501) or code in _PASSING:
        return StoreUnavailable(told, hint="it is tried again", status=status, **fields)
    return StoreError(
        told, hint="the store does not do what a checkpoint store must", status=status, **fields
    )


def _archived(
    answer: _Answer, verb: str, what: str, target: Target, fields: Mapping[str, str]
) -> EverstepError:
    """The object is there, in a tier that gives no bytes at once: S3 says 403, Azure 409; GCS has no such tier."""
    if verb == "create":
        return AlreadyExists(f"{what}: the key is taken, by an archived object", **fields)
    found = _CLASS.search(answer.text)
    coming = answer.code == "BlobBeingRehydrated"
    tier = found[1] if found else "Archive" if target.kind == "azure" else ""
    host = target.endpoint.host
    own = host.endswith((".amazonaws.com", ".amazonaws.com.cn", ".blob.core.windows.net"))
    return Archived(
        f"{what}: the object lies in an archive tier{f' ({tier})' if tier else ''}"
        f"{', and is being brought back' if coming else ''}",
        hint="call again when it is back" if coming else "bring it back first: see docs/guides/tiers.md",
        tier=tier,
        coming=coming,
        cloud=target.kind,
        container=target.place.container,
        prefix=target.place.prefix,
        account=str(target.config.get("account_name", "")),
        endpoint="" if own else target.endpoint.url,
        **fields,
    )


def _is_taken(code: str, target: Target) -> bool:
    """A 409 is Azure's word for a taken key; elsewhere it is a race that may pass, and so are Azure's others."""
    return target.kind == "azure" and not code


def _missing(
    answer: _Answer, verb: str, what: str, target: Target, fields: Mapping[str, str]
) -> EverstepError:
    word = _CONTAINER_WORD[target.kind]
    if (
        verb in {"create", "list"}
        or answer.code in _NO_CONTAINER
        or f"specified {word} does not exist" in answer.text
    ):
        return NotFound(
            f"{target.url}: there is no {word} {target.place.container!r} at {target.endpoint.host}",
            hint=f"create the {word}, or correct the address or the endpoint",
            url=target.url,
        )
    return ObjectNotFound(f"{what}: there is no such object", **fields)


def _access_hint(code: str, target: Target) -> str:
    extra = {
        "RequestTimeTooSkewed": "; the clock of this machine is off",
        "AuthorizationHeaderMalformed": "; AWS_REGION is not the bucket's region",
        "ExpiredToken": "; they have expired",
        "AuthorizationPermissionMismatch": "; they lack a role such as Storage Blob Data Contributor",
    }.get(code, "")
    return f"used: {target.credentials}{extra}"
