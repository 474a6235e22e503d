"""A training's place on each cloud, by environment variables alone, behind a proxy that a test may script."""

import os
import secrets
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from tests.emulators.proxy import Action, Asked, CutRequest, Pass, Proxy
from tests.store.clouds import SECRET

__all__ = ["Cloud", "Held", "environ_of", "everstep", "open_cloud", "start", "written"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Cloud:
    """An empty place in one cloud: its URL, the variables that lead there, the proxy on the way."""

    kind: str
    url: str
    environ: dict[str, str]
    proxy: Proxy

    def moved(self) -> "Cloud":
        """Another empty place in the same container or bucket."""
        return replace(self, url=f"{self.url.rpartition('/')[0]}/{secrets.token_hex(4)}")


def environ_of(kind: str, endpoint: str, request: pytest.FixtureRequest, *, secret: str) -> dict[str, str]:
    """What a user of this cloud sets."""
    if kind == "azure":
        azurite = request.getfixturevalue("azurite")
        return {
            "AZURE_STORAGE_CONNECTION_STRING": (
                f"DefaultEndpointsProtocol=http;AccountName={azurite.account};"
                f"AccountKey={secret};BlobEndpoint={endpoint};"
            )
        }
    if kind == "s3":
        return {
            "AWS_ACCESS_KEY_ID": "testing",
            "AWS_SECRET_ACCESS_KEY": secret,
            "AWS_REGION": "us-east-1",
            "AWS_ENDPOINT_URL": endpoint,
        }
    return {"STORAGE_EMULATOR_HOST": endpoint, "GOOGLE_OAUTH_ACCESS_TOKEN": secret}


def open_cloud(kind: str, request: pytest.FixtureRequest) -> Iterator[Cloud]:
    """A fresh container or bucket behind a fresh proxy, for as long as a test runs."""
    server = request.getfixturevalue({"azure": "azurite", "s3": "moto_server", "gcs": "gcs_server"}[kind])
    name = server.container() if kind == "azure" else server.bucket()
    scheme = {"azure": "az", "s3": "s3", "gcs": "gs"}[kind]
    with Proxy(server.endpoint) as proxy:
        yield Cloud(
            kind=kind,
            url=f"{scheme}://{name}/team",
            environ=environ_of(
                kind, proxy.endpoint, request, secret=server.key if kind == "azure" else SECRET
            ),
            proxy=proxy,
        )


class Held:
    """Holds the first request that ``chosen`` names, until `let`: then it is handed on, or cut if told so.

    All later ones wait behind it, so that whoever sent them can be killed in the middle.
    """

    def __init__(self, chosen: Callable[[Asked], bool]) -> None:
        self.reached = threading.Event()
        self._go = threading.Event()
        self._cut = False
        self._chosen = chosen

    def __call__(self, asked: Asked) -> Action:
        """As the proxy's script."""
        if self._chosen(asked) and not self._go.is_set():
            self.reached.set()
            self._go.wait(60)
            return CutRequest(0) if self._cut else Pass()
        return Pass()

    def let(self, *, cut: bool) -> None:
        """Go on; the request is late, or never arrives."""
        self._cut = cut
        self._go.set()


def start(script: Path, environ: dict[str, str], *arguments: str) -> subprocess.Popen[str]:
    """A training as a launcher starts it."""
    return subprocess.Popen(
        [sys.executable, str(script), *arguments],
        env={**os.environ, **environ},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=script.parent,
    )


def everstep(cloud_environ: dict[str, str], cwd: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """The real command line."""
    return subprocess.run(
        [Path(sys.executable).with_name("everstep"), *words],
        env={**os.environ, **cloud_environ, "COLUMNS": "500"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        cwd=cwd,
    )


def written(folder: Path, source: str) -> Path:
    """A script in a folder."""
    path = folder / "train.py"
    path.write_text(textwrap.dedent(source))
    return path
