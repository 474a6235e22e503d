"""A torch file as a training state. Read with ``weights_only``: nothing in it is ever called."""

from __future__ import annotations

import pickletools
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

from everstep.errors import EverstepError, InvalidManifest, UsageError

__all__ = ["ForeignPickle", "read_torch"]


class ForeignPickle(UsageError):
    """A pickle that would import something other than tensors and plain values; it was not executed."""

    code = "E-FOREIGN-PICKLE"


def read_torch(path: Path) -> dict[str, Any]:
    """What the file holds; anything but a dict stands under ``state``.

    Raises `ForeignPickle` naming the globals that the file wants, `InvalidManifest` for a file that is
    none of torch's, `UsageError` without torch.
    """
    try:
        import torch  # noqa: PLC0415 - an extra: safetensors files need none
    except ImportError:
        raise UsageError(
            f"{path} is a torch file, and torch is not installed", hint="install everstep[torch]"
        ) from None
    zipped = zipfile.is_zipfile(path)
    try:
        found = torch.load(path, map_location="cpu", weights_only=True, mmap=zipped)
    except UnpicklingError as error:
        raise _refused(path, error) from None
    except (RuntimeError, EOFError, ValueError, KeyError, IndexError, AttributeError, TypeError) as error:
        raise InvalidManifest(
            f"{path} is no file that torch reads: {str(error).splitlines()[0] if str(error) else type(error).__name__}",
            hint="fetch the file again; it may be cut short",
            path=str(path),
        ) from None
    if isinstance(found, Mapping) and all(isinstance(key, str) for key in found):
        return dict(found)
    return {"state": found}


def _refused(path: Path, error: UnpicklingError) -> EverstepError:
    foreign = sorted(set(_globals(path)) - _known())
    if not foreign:
        first = str(error).splitlines()[0] if str(error) else "its pickle cannot be read"
        return ForeignPickle(f"{path} was refused unexecuted: {first}", hint=_HINT, path=str(path))
    return ForeignPickle(
        f"{path} was refused unexecuted: its pickle wants {', '.join(foreign[:10])}",
        hint=_HINT,
        path=str(path),
        globals=foreign,
    )


_HINT = (
    "load it where you trust it, and save plain tensors: torch.save(model.state_dict(), ...) or safetensors"
)


def _known() -> set[str]:
    """Globals that ``weights_only`` allows, by name: enough of them to leave the foreign ones over."""
    import torch  # noqa: PLC0415 - as above

    own = {"collections.OrderedDict", "torch.Size", "torch.storage.UntypedStorage", "_codecs.encode"}
    rebuilt = {f"torch._utils.{name}" for name in dir(torch._utils) if name.startswith("_rebuild")}  # noqa: SLF001
    stored = {f"torch.{name}" for name in dir(torch) if name.endswith("Storage")}
    return own | rebuilt | stored


def _globals(path: Path) -> Iterator[str]:
    """Every global that the file's pickles name, found by reading their opcodes, which runs nothing."""
    for body in _pickles(path):
        texts: list[str] = []
        try:
            for opcode, argument, _position in pickletools.genops(body):
                if opcode.name in {"GLOBAL", "INST"}:
                    yield str(argument).replace(" ", ".")
                elif opcode.name == "STACK_GLOBAL" and len(texts) >= 2:
                    yield f"{texts[-2]}.{texts[-1]}"
                elif isinstance(argument, str):
                    texts.append(argument)
        except ValueError:
            return  # torch said what is wrong with it; the names found so far stand


def _pickles(path: Path) -> Iterator[bytes]:
    if zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as archive:
            for name in archive.namelist():
                if name.endswith("data.pkl"):
                    yield archive.read(name)
    else:
        yield path.read_bytes()
