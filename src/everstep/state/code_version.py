"""Which code made a checkpoint: the commit it came from, and the versions of its packages."""

from __future__ import annotations

import inspect
import platform
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Final

__all__ = ["code_version", "package_versions"]

_TIMEOUT_S: Final = 5.0
_PACKAGES: Final = ("everstep", "numpy", "torch", "jax", "flax", "transformers", "keras")


def code_version(*makers: object) -> dict[str, Any] | None:
    """The git commit of the source of the first of these classes and functions that is not a package's.

    Where all are, that of the script, or of the working folder. Says too whether files differ from the
    commit. None where there is no git, no repository, or git does not answer in 5 seconds.
    """
    folder = next((found for found in map(_folder, makers) if found is not None), None) or _script_folder()
    commit = _git(folder, "rev-parse", "HEAD")
    if commit is None:
        return None
    changes = _git(folder, "status", "--porcelain", "--untracked-files=no")
    return {"commit": commit.strip(), "dirty": None if changes is None else bool(changes.strip())}


def package_versions(kind: type) -> dict[str, str]:
    """Versions by name: Python, everstep, the frameworks that are installed, and the class's own package."""
    found = {"python": platform.python_version()}
    for name in dict.fromkeys((*_PACKAGES, kind.__module__.partition(".")[0])):
        try:
            found[name] = version(name)
        except (PackageNotFoundError, ValueError):
            continue
    return found


def _folder(maker: object) -> Path | None:
    """Where its source lies, unless that is an installed package or nowhere."""
    try:
        source = Path(inspect.getfile(maker)).resolve().parent  # type: ignore[arg-type]
    except (TypeError, OSError):
        return None
    installed = {"site-packages", "dist-packages"} & set(source.parts)
    return None if installed or source.is_relative_to(Path(inspect.__file__).resolve().parent) else source


def _script_folder() -> Path:
    """Where the program that runs was started from, as far as it is a file."""
    script = getattr(sys.modules["__main__"], "__file__", None)
    return Path(script).resolve().parent if script and _folder(sys.modules["__main__"]) else Path.cwd()


def _git(folder: Path, *words: str) -> str | None:
    try:
        done = subprocess.run(  # noqa: S603 - fixed words, no shell
            ["git", "--no-optional-locks", "-C", str(folder), *words],  # noqa: S607 - the user's own git
            capture_output=True,
            text=True,
            timeout=_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None
