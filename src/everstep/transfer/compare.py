"""Two checkpoints leaf by leaf: what is equal to the bit, and how far apart the rest is."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

import msgspec
import numpy as np

from everstep.events import Listener, Transferred, silent
from everstep.format.box import Box
from everstep.format.dtypes import ITEM_BYTES
from everstep.format.entries import Alias, Container, Entry, Tensor, Value
from everstep.format.values import decode
from everstep.transfer.contents import Contents, slabs
from everstep.transfer.numbers import as_numbers

__all__ = ["Change", "Comparison", "Difference", "compare"]

_BATCH_BYTES = 64 * 2**20
_BLOCK_BYTES = 2**20
"""Numbers are compared a block at a time, so that float64 copies stay small beside the batch."""


class Change(StrEnum):
    """What became of a leaf from A to B."""

    CHANGED = "changed"
    ADDED = "added"
    REMOVED = "removed"
    KIND = "kind"


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """One leaf that is not the same in A and B.

    ``a`` and ``b`` say what it is on each side, None where it is absent: ``float32[3, 4]``, a plain value's
    repr, a container's type. ``relative`` is the L2 norm of B - A over the norm of A, ``max_abs`` the largest
    absolute difference; both over elements that are finite on both sides, None where shapes differ or
    elements are not numbers. ``nan_a`` and ``nan_b`` count NaN. ``bytes_changed`` of ``bytes_b``
    (of ``bytes_a`` for a leaf that was removed) are not the same.
    """

    path: str
    change: Change
    a: str | None
    b: str | None
    relative: float | None = None
    max_abs: float | None = None
    nan_a: int | None = None
    nan_b: int | None = None
    bytes_a: int = 0
    bytes_b: int = 0
    bytes_changed: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """How many leaves were compared, those that differ, by path as in A and then B, and bytes read for it."""

    leaves: int
    differences: tuple[Difference, ...]
    bytes_read: int

    @property
    def equal(self) -> bool:
        """Whether everything is the same to the bit."""
        return not self.differences


@dataclass(slots=True, kw_only=True)
class _Sum:
    """What is summed up over the parts of one tensor."""

    squares_a: float = 0.0
    squares_of_difference: float = 0.0
    max_abs: float = 0.0
    nan_a: int = 0
    nan_b: int = 0
    bytes_changed: int = 0
    numeric: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class _Part:
    """A box of a tensor to compare, and the sums it goes into."""

    a: Tensor
    b: Tensor
    box: Box
    sums: _Sum = field(compare=False)


def compare(
    a: Contents,
    b: Contents,
    *,
    wanted: Callable[[str], bool] = lambda _path: True,
    listener: Listener = silent,
) -> Comparison:
    """Every leaf whose path is ``wanted``, to the bit: NaN equals the same NaN, 0.0 is not -0.0, 1 is not 1.0.

    Tensors whose digests are equal are not read. Raises what reading raises: `CorruptChunk`, `MissingObject`,
    first of all `Archived`.
    """
    ours = {path: entry for path, entry in a.entries.items() if wanted(path)}
    theirs = {path: entry for path, entry in b.entries.items() if wanted(path)}
    paths = [*ours, *(path for path in theirs if path not in ours)]
    settled: dict[str, Difference] = {}
    sums: dict[str, _Sum] = {}
    for path in paths:
        left, right = ours.get(path), theirs.get(path)
        if isinstance(left, Tensor) and isinstance(right, Tensor):
            if _described(left) == _described(right) and a.same_bytes(path, b):
                continue
            if left.shape == right.shape:
                sums[path] = _Sum()
            else:
                settled[path] = _difference(path, left, right)
        elif (difference := _without_bytes(path, left, right)) is not None:
            settled[path] = difference
    read = _read(a, b, sums, listener)
    for path, summed in sums.items():
        left, right = ours[path], theirs[path]
        assert isinstance(left, Tensor)
        assert isinstance(right, Tensor)
        if summed.bytes_changed or _described(left) != _described(right):
            settled[path] = _measured(path, left, right, summed)
    return Comparison(
        leaves=sum(
            not (
                isinstance(ours.get(path), Container | None)
                and isinstance(theirs.get(path), Container | None)
            )
            for path in paths
        ),
        differences=tuple(settled[path] for path in paths if path in settled),
        bytes_read=read,
    )


def _described(tensor: Tensor) -> tuple[object, ...]:
    """All that two equal tensors share beside their bytes."""
    return (tensor.dtype, tensor.shape, tensor.framework, msgspec.json.encode(tensor.extra, order="sorted"))


def _nbytes(entry: Entry | None) -> int:
    return math.prod(entry.shape) * ITEM_BYTES[entry.dtype] if isinstance(entry, Tensor) else 0


def _text(entry: Entry | None) -> str | None:
    match entry:
        case None:
            return None
        case Tensor():
            return f"{entry.dtype}{list(entry.shape)}"
        case Value():
            return repr(decode(entry.value))
        case Container():
            return f"{entry.type} {entry.name}" if entry.name else entry.type
        case Alias():
            view = f" as {list(entry.shape)} at {entry.offset}" if entry.shape is not None else ""
            return f"tied to {entry.of}{view}"


def _marks(tensor: Tensor) -> str:
    """A tensor with all that it is beside its numbers."""
    marks = "".join(f", {name} {value}" for name, value in sorted(tensor.extra.items()))
    return f"{tensor.framework} {_text(tensor)}{marks}"


def _without_bytes(path: str, a: Entry | None, b: Entry | None) -> Difference | None:
    """The difference of two entries that are not both tensors."""
    if isinstance(a, Container) and isinstance(b, Container):
        same = (a.type, a.name) == (b.type, b.name)  # a key that is missing shows as its own leaf
    elif isinstance(a, Value) and isinstance(b, Value):
        same = msgspec.json.encode(a.value) == msgspec.json.encode(b.value)  # 1 is not 1.0, and NaN is itself
    else:
        same = a == b
    return None if same else _difference(path, a, b)


def _difference(path: str, a: Entry | None, b: Entry | None) -> Difference:
    if a is None:
        change = Change.ADDED
    elif b is None:
        change = Change.REMOVED
    else:
        change = Change.CHANGED if type(a) is type(b) and not isinstance(a, Container) else Change.KIND
    apart = _numbers_apart(a, b)
    return Difference(
        path=path,
        change=change,
        a=_text(a),
        b=_text(b),
        relative=None if apart is None else _relative(apart**2, _number(a) ** 2),
        max_abs=apart,
        bytes_a=_nbytes(a),
        bytes_b=_nbytes(b),
        bytes_changed=_nbytes(b if b is not None else a),
    )


def _number(entry: Entry | None) -> float:
    if (
        isinstance(entry, Value)
        and isinstance(entry.value, int | float)
        and not isinstance(entry.value, bool)
    ):
        return float(entry.value)
    return math.nan


def _numbers_apart(a: Entry | None, b: Entry | None) -> float | None:
    apart = abs(_number(b) - _number(a))
    return apart if math.isfinite(apart) else None


def _measured(path: str, a: Tensor, b: Tensor, sums: _Sum) -> Difference:
    marked = sums.bytes_changed == 0 and a.dtype == b.dtype  # the same numbers, in something else
    return Difference(
        path=path,
        change=Change.KIND if marked else Change.CHANGED,
        a=_marks(a) if marked else _text(a),
        b=_marks(b) if marked else _text(b),
        relative=_relative(sums.squares_of_difference, sums.squares_a) if sums.numeric else None,
        max_abs=sums.max_abs if sums.numeric else None,
        nan_a=sums.nan_a if sums.numeric else None,
        nan_b=sums.nan_b if sums.numeric else None,
        bytes_a=_nbytes(a),
        bytes_b=_nbytes(b),
        bytes_changed=sums.bytes_changed if a.dtype == b.dtype else _nbytes(b),
    )


def _relative(squares_of_difference: float, squares_of_a: float) -> float:
    if squares_of_difference == 0:
        return 0.0
    return math.sqrt(squares_of_difference / squares_of_a) if squares_of_a else math.inf


def _read(a: Contents, b: Contents, sums: dict[str, _Sum], listener: Listener) -> int:
    """Read and sum up every tensor in ``sums``, a batch at a time; gives the bytes read."""
    a.check_readable(sums)
    b.check_readable(sums)
    total = sum(_nbytes(a.entries[path]) + _nbytes(b.entries[path]) for path in sums)
    done = 0
    for batch in _batches(_parts(a.entries, b.entries, sums)):
        left = a.read([(part.a.path, part.box) for part in batch])
        right = b.read([(part.b.path, part.box) for part in batch])
        for part, filled_a, filled_b in zip(batch, left, right, strict=True):
            _add(part, filled_a, filled_b)
            done += len(filled_a) + len(filled_b)
        listener(Transferred(what="compare", done=done, total=total))
    return done


def _parts(ours: Mapping[str, Entry], theirs: Mapping[str, Entry], sums: dict[str, _Sum]) -> Iterator[_Part]:
    for path, summed in sums.items():
        left, right = ours[path], theirs[path]
        assert isinstance(left, Tensor)
        assert isinstance(right, Tensor)
        widest = max(ITEM_BYTES[left.dtype], ITEM_BYTES[right.dtype])
        for box in slabs(left.shape, widest, _BATCH_BYTES):
            yield _Part(a=left, b=right, box=box, sums=summed)


def _batches(parts: Iterator[_Part]) -> Iterator[Sequence[_Part]]:
    batch: list[_Part] = []
    held = 0
    for part in parts:
        size = part.box.elements * max(ITEM_BYTES[part.a.dtype], ITEM_BYTES[part.b.dtype])
        if batch and held + size > _BATCH_BYTES:
            yield batch
            batch, held = [], 0
        batch.append(part)
        held += size
    if batch:
        yield batch


def _add(part: _Part, filled_a: memoryview, filled_b: memoryview) -> None:
    """Sum up one part, in blocks of whole elements."""
    item_a, item_b = ITEM_BYTES[part.a.dtype], ITEM_BYTES[part.b.dtype]
    step = max(1, _BLOCK_BYTES // max(item_a, item_b))
    for start in range(0, part.box.elements, step):
        block_a = filled_a[start * item_a : (start + step) * item_a]
        block_b = filled_b[start * item_b : (start + step) * item_b]
        if part.a.dtype == part.b.dtype:
            left, right = np.frombuffer(block_a, np.uint8), np.frombuffer(block_b, np.uint8)
            part.sums.bytes_changed += int(np.count_nonzero(left != right))
        _add_numbers(part, block_a, block_b)


def _add_numbers(part: _Part, block_a: memoryview, block_b: memoryview) -> None:
    sums = part.sums
    numbers_a, numbers_b = as_numbers(block_a, part.a.dtype), as_numbers(block_b, part.b.dtype)
    if numbers_a is None or numbers_b is None:
        sums.numeric = False
        return
    sums.nan_a += int(np.count_nonzero(np.isnan(numbers_a)))
    sums.nan_b += int(np.count_nonzero(np.isnan(numbers_b)))
    finite = np.isfinite(numbers_a) & np.isfinite(numbers_b)
    if not finite.all():
        numbers_a, numbers_b = numbers_a[finite], numbers_b[finite]
    if not numbers_a.size:
        return
    with np.errstate(over="ignore"):  # squares of huge float64 become infinity, and the quotient says so
        apart = np.abs(numbers_b - numbers_a)
        sums.squares_of_difference += float(np.sum(apart * apart))
        sums.squares_a += float(np.sum(np.abs(numbers_a) ** 2))
    sums.max_abs = max(sums.max_abs, float(apart.max()))
