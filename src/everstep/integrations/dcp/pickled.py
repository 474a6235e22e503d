"""The pickle of a DCP folder read as data: its opcodes are followed, nothing it names is imported or called."""

from __future__ import annotations

import pickletools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from everstep.errors import InvalidManifest
from everstep.format.dtypes import ITEM_BYTES
from everstep.integrations.torch_read import ForeignPickle

__all__ = ["Made", "Named", "read_pickle"]

_METADATA: Final = "torch.distributed.checkpoint.metadata"
_OLD: Final = "torch.distributed._shard.sharded_tensor.metadata"
_ALLOWED: Final = frozenset(
    {
        *(
            f"{_METADATA}.{name}"
            for name in (
                "BytesStorageMetadata", "ChunkStorageMetadata", "Metadata", "MetadataIndex", "StorageMeta",
                "TensorProperties", "TensorStorageMetadata", "_MEM_FORMAT_ENCODING",
            )
        ),
        f"{_OLD}.TensorProperties",
        f"{_OLD}.MEM_FORMAT_ENCODING",
        "torch.distributed.checkpoint.filesystem._StorageInfo",
        "torch.Size",
        "torch.serialization._get_layout",
        "collections.OrderedDict",
        "pathlib.PosixPath",
        "pathlib.PurePosixPath",
        "pathlib._local.PosixPath",
        "builtins.getattr",  # Python 3.11.0 to 3.11.3 pickle an enum's member as this, and only so it is taken
        *(f"torch.{name}" for name in ITEM_BYTES),
    }
)  # fmt: skip
_ENUMS: Final = frozenset({f"{_METADATA}._MEM_FORMAT_ENCODING", f"{_OLD}.MEM_FORMAT_ENCODING"})
_MOST: Final = 50_000_000
"""Opcodes in one pickle."""


@dataclass(frozen=True, slots=True)
class Named:
    """A class, function or element type, by name only."""

    name: str


@dataclass(slots=True, eq=False)
class Made:
    """What would be an object: of ``kind``, made with ``args``, then given ``state``."""

    kind: str
    args: tuple[Any, ...]
    state: Any = None


_MARK: Final = object()


def read_pickle(body: bytes, what: str) -> Any:
    """The pickle's content in lists, dicts, tuples, plain values, `Named` and `Made`.

    Raises `ForeignPickle` naming the first global that DCP's metadata does not need, and `InvalidManifest`
    for bytes that are no whole pickle.
    """
    machine = _Machine(what)
    try:
        for number, (opcode, argument, _position) in enumerate(pickletools.genops(body)):
            if number > _MOST:
                raise _broken(what, f"more than {_MOST} steps")
            if opcode.name == "STOP":
                return machine.stack[-1]
            machine.do(opcode.name, argument)
    except (ValueError, IndexError, TypeError, KeyError, AttributeError, AssertionError) as error:
        raise _broken(what, str(error)) from None
    raise _broken(what, "it ends too early")


def _broken(what: str, why: str) -> InvalidManifest:
    return InvalidManifest(
        f"{what} cannot be read: {why:.200}", hint="fetch the folder again; it may be cut short", path=what
    )


@dataclass(slots=True)
class _Machine:
    what: str
    stack: list[Any] = field(default_factory=list)
    memo: dict[int, Any] = field(default_factory=dict)

    def do(self, name: str, argument: Any) -> None:
        """One opcode."""
        if name in _PASSED:
            return
        if name in _PUSHED:
            self.stack.append(argument)
        elif name in _CONSTANTS:
            self.stack.append(_CONSTANTS[name]())
        elif name in ("MEMOIZE", "PUT", "BINPUT", "LONG_BINPUT"):
            self.memo[len(self.memo) if argument is None else int(argument)] = self.stack[-1]
        elif name in ("GET", "BINGET", "LONG_BINGET"):
            self.stack.append(self.memo[int(argument)])
        else:
            step = _STEPS.get(name)
            if step is None:
                raise ForeignPickle(
                    f"{self.what} was refused unexecuted: its pickle has {name}", path=self.what
                )
            step(self, argument)

    def _marked(self) -> list[Any]:
        """All above the last mark, which goes."""
        at = max(n for n, item in enumerate(self.stack) if item is _MARK) if self.stack else 0
        items = self.stack[at + 1 :]
        del self.stack[at:]
        return items

    def _named(self, name: str) -> None:
        if name not in _ALLOWED:
            raise ForeignPickle(
                f"{self.what} was refused unexecuted: its pickle wants {name}",
                hint="load it where you trust it, and save it again with everstep's StorageWriter",
                path=self.what,
                globals=[name],
            )
        self.stack.append(Named(name))

    def global_(self, argument: Any) -> None:
        """A name written out."""
        module, _, name = str(argument).partition(" ")
        self._named(f"{module}.{name}")

    def stack_global(self, _argument: Any) -> None:
        """A name on the stack."""
        name, module = self.stack.pop(), self.stack.pop()
        self._named(f"{module}.{name}")

    def make(self, _argument: Any) -> None:
        """NEWOBJ and REDUCE: what would be a call."""
        args, kind = self.stack.pop(), self.stack.pop()
        if not isinstance(kind, Named) or not isinstance(args, tuple):
            raise ValueError("a call of what is no class")  # noqa: TRY004 - told as a broken pickle
        if kind.name == "builtins.getattr":
            kind, args = self._member(args)
        self.stack.append(Made(kind.name, args))

    def _member(self, args: tuple[Any, ...]) -> tuple[Named, tuple[str]]:
        """A member of one of the two enums, by name. Raises `ForeignPickle` for any other attribute."""
        owner, name = args if len(args) == 2 else (None, None)
        if isinstance(owner, Named) and owner.name in _ENUMS and isinstance(name, str):
            return owner, (name,)
        raise ForeignPickle(
            f"{self.what} was refused unexecuted: its pickle wants builtins.getattr{args!r:.100}",
            hint="load it where you trust it, and save it again with everstep's StorageWriter",
            path=self.what,
            globals=["builtins.getattr"],
        )

    def build(self, _argument: Any) -> None:
        """BUILD: what would set attributes."""
        state = self.stack.pop()
        self.stack[-1].state = state

    def tuple_(self, count: int | None) -> None:
        """The topmost items as one tuple."""
        items = self._marked() if count is None else self.stack[len(self.stack) - count :]
        if count:
            del self.stack[-count:]
        self.stack.append(tuple(items))

    def items(self, _argument: Any) -> None:
        """Marked pairs into a dict."""
        found = self._marked()
        _into(self.stack[-1], found)

    def item(self, _argument: Any) -> None:
        """One pair into a dict."""
        value, key = self.stack.pop(), self.stack.pop()
        _into(self.stack[-1], [key, value])

    def append(self, _argument: Any) -> None:
        """One item into a list."""
        value = self.stack.pop()
        self.stack[-1].append(value)

    def appends(self, _argument: Any) -> None:
        """Marked items into a list, or a set."""
        found = self._marked()
        target = self.stack[-1]
        if isinstance(target, set):
            target.update(found)
        else:
            target.extend(found)

    def whole(self, kind: type) -> None:
        """Marked items as a new container."""
        found = self._marked()
        made: Any = dict(zip(found[::2], found[1::2], strict=True)) if kind is dict else kind(found)
        self.stack.append(made)

    def pop(self, _argument: Any) -> None:
        """The topmost item away."""
        self.stack.pop()

    def pop_mark(self, _argument: Any) -> None:
        """All above the last mark away."""
        self._marked()


def _into(target: Any, found: list[Any]) -> None:
    """Pairs into a dict, or into what would be an OrderedDict."""
    if isinstance(target, Made):
        target.state = target.state or {}
        target = target.state
    assert isinstance(target, dict), "items of what is no dict"
    target.update(zip(found[::2], found[1::2], strict=True))


_PASSED: Final = frozenset({"PROTO", "FRAME"})
_PUSHED: Final = frozenset(
    {
        "BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8", "UNICODE", "BINBYTES", "SHORT_BINBYTES", "BINBYTES8",
        "BININT", "BININT1", "BININT2", "INT", "LONG", "LONG1", "LONG4", "BINFLOAT", "FLOAT",
    }
)  # fmt: skip
_CONSTANTS: Final[dict[str, Callable[[], Any]]] = {
    "NONE": lambda: None,
    "NEWTRUE": lambda: True,
    "NEWFALSE": lambda: False,
    "EMPTY_DICT": dict,
    "EMPTY_LIST": list,
    "EMPTY_TUPLE": tuple,
    "EMPTY_SET": set,
    "MARK": lambda: _MARK,
}
_STEPS: Final[dict[str, Callable[[_Machine, Any], None]]] = {
    "GLOBAL": _Machine.global_,
    "STACK_GLOBAL": _Machine.stack_global,
    "NEWOBJ": _Machine.make,
    "REDUCE": _Machine.make,
    "BUILD": _Machine.build,
    "TUPLE": lambda machine, _: machine.tuple_(None),
    "TUPLE1": lambda machine, _: machine.tuple_(1),
    "TUPLE2": lambda machine, _: machine.tuple_(2),
    "TUPLE3": lambda machine, _: machine.tuple_(3),
    "SETITEM": _Machine.item,
    "SETITEMS": _Machine.items,
    "APPEND": _Machine.append,
    "APPENDS": _Machine.appends,
    "ADDITEMS": _Machine.appends,
    "DICT": lambda machine, _: machine.whole(dict),
    "LIST": lambda machine, _: machine.whole(list),
    "FROZENSET": lambda machine, _: machine.whole(frozenset),
    "POP_MARK": _Machine.pop_mark,
    "POP": _Machine.pop,
}
