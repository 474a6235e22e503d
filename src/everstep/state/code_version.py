"""Which code made a checkpoint: the commit it came from, and the versions of its packages."""

from __future__ import annotations

import inspect
import platform
import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Final

__all__ = ["code_version", "package_versions"]

_TIMEOUT_S: Final = 5.0
_PACKAGES: Final = ("everstep", "numpy", "torch", "jax", "flax", "transformers", "keras")


def code_version(kind: type) -> dict[str, Any] | None:
    """The git commit of a class's source, or of the working folder, and whether files differ from it.

    None where there is no git, no repository, or git does not answer in 5 seconds.
    """
    folder = _folder(kind)
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


def _folder(kind: type) -> Path:
    try:
        source = Path(inspect.getfile(kind)).parent
    except (TypeError, OSError):
        return Path.cwd()
    return Path.cwd() if "site-packages" in source.parts else source


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
