"""One set of servers for a test run, however many workers it has.

The process that began the run starts each server when it is first asked for, and owns it. Workers ask over
a Unix socket. Servers are tied to the owner by the kernel: a test run that is killed leaves none behind.
"""

import contextlib
import os
import shutil
import signal
import socket
import socketserver
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from tests.emulators.recipes import RECIPES, free_port

__all__ = ["Fleet", "FleetAddress"]

STARTUP_S = 90.0
LEASH = Path(__file__).with_name("leash.py")


class Fleet:
    """The servers of a run, started on first use, ended by `close`."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="everstep-emulators-"))
        self._ports: dict[str, int] = {}
        self._running: list[subprocess.Popen[bytes]] = []
        self._lock = threading.Lock()
        self._listener: socketserver.ThreadingUnixStreamServer | None = None

    def port(self, name: str) -> int:
        """The port on which the named server listens."""
        with self._lock:
            if name not in self._ports:
                self._ports[name] = self._start(name)
            return self._ports[name]

    def serve(self) -> str:
        """Answer workers from now on, at the address returned."""
        address = str(self.folder / "ask")
        fleet = self

        class Answer(socketserver.StreamRequestHandler):
            def handle(self) -> None:
                name = self.rfile.readline().decode().strip()
                try:
                    answer = f"port {fleet.port(name)}"
                except (OSError, RuntimeError, KeyError) as error:
                    answer = f"error {type(error).__name__}: {error}".replace("\n", "\\n")
                self.wfile.write(f"{answer}\n".encode())

        self._listener = socketserver.ThreadingUnixStreamServer(address, Answer)
        self._listener.daemon_threads = True
        threading.Thread(target=self._listener.serve_forever, name="emulators", daemon=True).start()
        return address

    def close(self) -> None:
        """End every server and remove what they wrote."""
        if self._listener is not None:
            self._listener.shutdown()
            self._listener.server_close()
        for process in self._running:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _start(self, name: str) -> int:
        recipe = RECIPES[name]
        own = self.folder / name
        own.mkdir()
        words = self.folder / f"{name}.log"
        # A thread that ends takes its leashed children with it, so one that lives as long as the run starts them.
        command = recipe.command(own, free_port())
        with words.open("wb") as log:
            leashed = [sys.executable, "-I", "-S", str(LEASH), str(os.getpid()), *command]
            process = _launch(leashed, own, log.fileno())
        self._running.append(process)
        deadline = time.monotonic() + STARTUP_S
        while time.monotonic() < deadline:
            printed = words.read_text(errors="replace")
            if found := recipe.ready.search(printed):
                return int(found[1])
            if process.poll() is not None:
                break
            time.sleep(0.02)
        message = (
            f"{name} did not start ({process.poll()}): {command}\n{words.read_text(errors='replace')[-4000:]}"
        )
        raise RuntimeError(message)


class FleetAddress:
    """The fleet as a worker sees it."""

    def __init__(self, address: str) -> None:
        self._address = address

    def port(self, name: str) -> int:
        """The port on which the named server listens."""
        with socket.socket(socket.AF_UNIX) as line:
            line.settimeout(STARTUP_S + 10)
            line.connect(self._address)
            line.sendall(f"{name}\n".encode())
            kind, _, answer = line.makefile().readline().strip().partition(" ")
        if kind != "port":
            raise RuntimeError(answer.replace("\\n", "\n"))
        return int(answer)


def _launch(command: list[str], folder: Path, output: int) -> subprocess.Popen[bytes]:
    started: list[subprocess.Popen[bytes]] = []
    failed: list[OSError] = []

    def start() -> None:
        try:
            started.append(
                subprocess.Popen(
                    command,
                    cwd=folder,
                    env=_environment(folder),
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
            )
        except OSError as error:
            failed.append(error)
        done.set()
        if started:
            started[0].wait()  # the kernel ends a leashed process when the THREAD that started it ends

    done = threading.Event()
    threading.Thread(target=start, name="emulator", daemon=True).start()
    done.wait()
    if failed:
        raise failed[0]
    return started[0]


def _environment(folder: Path) -> dict[str, str]:
    """What a server needs to run, and nothing of the user's accounts or proxies."""
    kept = ("PATH", "LANG", "LD_LIBRARY_PATH", "SYSTEMROOT")
    own = {"HOME": str(folder), "TMPDIR": str(folder), "NO_COLOR": "1", "PYTHONUNBUFFERED": "1"}
    return {name: os.environ[name] for name in kept if name in os.environ} | own
