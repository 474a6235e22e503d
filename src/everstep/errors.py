"""Every error that everstep raises.

EverstepError
├── UsageError                 exit 2: the caller's words are off
│   ├── InvalidName            a run, tag or key that cannot be one
│   ├── UnsupportedLeaf        a value that cannot be saved, by path and type
│   └── NotYetSupported        a setting whose feature is not in this version
├── NotFound                   exit 3
│   ├── ObjectNotFound         no such key in the store
│   ├── RunNotFound
│   ├── CheckpointNotFound
│   └── CheckpointPruned       it was there, and was pruned
├── AccessDenied               exit 4: credentials missing, wrong or expired
├── TryAgain                   exit 5: may work later
│   ├── StoreUnavailable       throttled, unreachable, reset, timed out
│   ├── ShortRead              a range came back with another length
│   ├── SaveTimeout            ranks that never came, by number
│   └── RanksMissing           ranks that did not answer in time, by number
├── IntegrityError             exit 6: bytes are not what was written
│   ├── CorruptChunk           run, step, rank, key and offset named
│   ├── CorruptObject          an index or a manifest with another digest
│   ├── MissingObject          an object that a checkpoint needs is gone
│   ├── InvalidManifest        a field out of bounds, named
│   └── UnsupportedFormat      written by a newer major version
├── StoreError                 exit 1: the store cannot do what is asked
│   ├── AlreadyExists          the answer of create to a second writer
│   ├── ConditionIgnored       the store overwrites on create: refused
│   ├── UnsuitableStore        a mount or place that breaks the promises
│   ├── StoreFull              no space left, quota
│   └── Archived               an object in an archive tier: whole, and not to be read before it is brought back
├── SaveError                  exit 1
│   ├── SaveFailed             what went wrong, at which key
│   ├── SaveAborted            another attempt gave this save up
│   ├── Fenced                 a newer attempt owns the run
│   ├── DuplicateRank          one rank wrote twice, differently
│   ├── DisagreeingPlans       ranks with other plans, leaves and numbers named
│   └── DivergentReplicas      replicas with other bytes, leaf and ranks named
└── RestoreError               exit 1
    ├── RestoreMismatch        leaves missing, extra, of another shape or dtype
    └── MissingElements        the indexes that were read do not cover a tensor
"""

from __future__ import annotations

__all__ = [
    "AccessDenied",
    "AlreadyExists",
    "Archived",
    "CheckpointNotFound",
    "CheckpointPruned",
    "ConditionIgnored",
    "CorruptChunk",
    "CorruptObject",
    "DisagreeingPlans",
    "DivergentReplicas",
    "DuplicateRank",
    "EverstepError",
    "Fenced",
    "IntegrityError",
    "InvalidManifest",
    "InvalidName",
    "MissingElements",
    "MissingObject",
    "NotFound",
    "NotYetSupported",
    "ObjectNotFound",
    "RanksMissing",
    "RestoreError",
    "RestoreMismatch",
    "RunNotFound",
    "SaveAborted",
    "SaveError",
    "SaveFailed",
    "SaveTimeout",
    "ShortRead",
    "StoreError",
    "StoreFull",
    "StoreUnavailable",
    "TryAgain",
    "UnsuitableStore",
    "UnsupportedFormat",
    "UnsupportedLeaf",
    "UsageError",
]


class EverstepError(Exception):
    """The root: a message of what happened and where, and a hint of what to do next.

    ``fields`` are the facts named in the message, for machines (``--json``).
    """

    code = "E-ERROR"
    exit_code = 1
    retryable = False

    def __init__(self, message: str, *, hint: str = "", **fields: object) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.fields = fields

    def __str__(self) -> str:
        """The message, and the hint on a line of its own."""
        return f"{self.message}\nhint: {self.hint}" if self.hint else self.message

    def __reduce__(self) -> tuple[object, ...]:
        """Errors cross process borders whole."""
        return (_rebuild, (type(self), self.message, self.hint, self.fields))


def _rebuild(kind: type[EverstepError], message: str, hint: str, fields: dict[str, object]) -> EverstepError:
    return kind(message, hint=hint, **fields)


class UsageError(EverstepError):
    """The caller's words are off."""

    code = "E-USAGE"
    exit_code = 2


class InvalidName(UsageError):
    """A run, tag or key that cannot be one."""

    code = "E-INVALID-NAME"


class UnsupportedLeaf(UsageError):
    """A value in the training state that cannot be saved."""

    code = "E-UNSUPPORTED-LEAF"


class NotYetSupported(UsageError):
    """A setting whose feature is not in this version."""

    code = "E-NOT-YET"


class NotFound(EverstepError):
    """Something that was asked for by name is not there."""

    code = "E-NOT-FOUND"
    exit_code = 3


class ObjectNotFound(NotFound):
    """No object has this key."""

    code = "E-OBJECT-NOT-FOUND"


class RunNotFound(NotFound):
    """The store has no run of this name."""

    code = "E-RUN-NOT-FOUND"


class CheckpointNotFound(NotFound):
    """The run has no committed checkpoint at this step."""

    code = "E-CHECKPOINT-NOT-FOUND"


class CheckpointPruned(NotFound):
    """The checkpoint was pruned."""

    code = "E-CHECKPOINT-PRUNED"


class AccessDenied(EverstepError):
    """The store refused the credentials."""

    code = "E-ACCESS-DENIED"
    exit_code = 4


class TryAgain(EverstepError):
    """It may work later, unchanged."""

    code = "E-TRY-AGAIN"
    exit_code = 5
    retryable = True


class StoreUnavailable(TryAgain):
    """The store throttled, timed out, reset the connection or could not be reached."""

    code = "E-STORE-UNAVAILABLE"


class ShortRead(TryAgain):
    """A range came back with another length than was asked for."""

    code = "E-SHORT-READ"


class SaveTimeout(TryAgain):
    """Ranks did not finish their part of a save in time."""

    code = "E-SAVE-TIMEOUT"


class RanksMissing(TryAgain):
    """Ranks did not answer in time."""

    code = "E-RANKS-MISSING"


class IntegrityError(EverstepError):
    """Bytes in the store are not what was written."""

    code = "E-INTEGRITY"
    exit_code = 6


class CorruptChunk(IntegrityError):
    """A chunk whose digest is not the recorded one."""

    code = "E-CORRUPT-CHUNK"


class CorruptObject(IntegrityError):
    """An index, a manifest or a record whose bytes are not what was written."""

    code = "E-CORRUPT-OBJECT"


class MissingObject(IntegrityError):
    """An object that a committed checkpoint needs is gone."""

    code = "E-MISSING-OBJECT"


class InvalidManifest(IntegrityError):
    """A stored description with a field out of bounds."""

    code = "E-INVALID-MANIFEST"


class UnsupportedFormat(IntegrityError):
    """The store was written by a newer major version of the format."""

    code = "E-UNSUPPORTED-FORMAT"


class StoreError(EverstepError):
    """The store cannot do what is asked."""

    code = "E-STORE"


class AlreadyExists(StoreError):
    """The key exists: another writer, or one's own lost answer, came first."""

    code = "E-ALREADY-EXISTS"


class ConditionIgnored(StoreError):
    """The store overwrites an object on create-if-absent."""

    code = "E-CONDITION-IGNORED"


class UnsuitableStore(StoreError):
    """A place that cannot keep the promises a store must keep."""

    code = "E-UNSUITABLE-STORE"


class StoreFull(StoreError):
    """No space is left."""

    code = "E-STORE-FULL"


class Archived(StoreError):
    """Objects lie in an archive tier: whole, but the store gives their bytes only hours after it was asked to.

    No damage, and nothing to try again for: somebody must decide to pay for it. From a store it has the fields ``key``,
    ``tier`` (the store's own word, empty if it told none), ``coming`` (whether it is being brought back already),
    and where it lies: ``cloud``, ``container``, ``prefix``, ``account``, ``endpoint``.
    """

    code = "E-ARCHIVED"


class SaveError(EverstepError):
    """A save did not become a checkpoint."""

    code = "E-SAVE"


class SaveFailed(SaveError):
    """A save stopped with an error."""

    code = "E-SAVE-FAILED"


class SaveAborted(SaveError):
    """Another attempt, or a prune, gave this save up."""

    code = "E-SAVE-ABORTED"


class Fenced(SaveError):
    """A newer attempt owns the run: this one must stop."""

    code = "E-FENCED"


class DuplicateRank(SaveError):
    """Two writers claim one rank with different bytes."""

    code = "E-DUPLICATE-RANK"


class DisagreeingPlans(SaveError):
    """Ranks computed different plans for one save."""

    code = "E-DISAGREEING-PLANS"


class DivergentReplicas(SaveError):
    """Ranks that must hold the same bytes hold different ones."""

    code = "E-DIVERGENT-REPLICAS"


class RestoreError(EverstepError):
    """A restore that cannot be done as asked."""

    code = "E-RESTORE"


class RestoreMismatch(RestoreError):
    """The state and the checkpoint differ in leaves, shapes or dtypes."""

    code = "E-RESTORE-MISMATCH"


class MissingElements(RestoreError):
    """The indexes that were read do not hold every element of a tensor."""

    code = "E-MISSING-ELEMENTS"
