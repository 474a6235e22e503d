"""A proxy before a test server that cuts connections, loses answers, or answers itself, as a script says."""

import contextlib
import http.client
import socket
import struct
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Self
from urllib.parse import urlsplit

__all__ = ["Answer", "Asked", "Change", "CutAnswer", "CutRequest", "Lose", "Pass", "Proxy"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """One request: its number from 1 on, over all connections."""

    number: int
    method: str
    path: str
    headers: dict[str, str]
    length: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What the server said, or what the proxy says in its place: then the server never sees the request."""

    status: int
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""


@dataclass(frozen=True, slots=True)
class Pass:
    """Hand the request on, and its answer back."""


@dataclass(frozen=True, slots=True)
class CutRequest:
    """Reset the connection after so many bytes of the request's body; the server sees nothing."""

    after: int


@dataclass(frozen=True, slots=True)
class CutAnswer:
    """Hand on, then reset the connection after so many bytes of the answer's body."""

    after: int


@dataclass(frozen=True, slots=True)
class Lose:
    """Hand on, then reset the connection without a word of the answer."""


@dataclass(frozen=True, slots=True)
class Change:
    """Hand on, and give a changed answer back."""

    by: Callable[[Answer], Answer]


Action = Answer | Pass | CutRequest | CutAnswer | Lose | Change
_HOP = {"connection", "keep-alive", "transfer-encoding", "content-length"}


class Proxy:
    """Listens on loopback before ``endpoint``; ``script`` says what becomes of each request.

    ``asked`` are all requests, ``reached`` those that the server saw.
    """

    def __init__(self, endpoint: str) -> None:
        self.script: Callable[[Asked], Action] = lambda _asked: Pass()
        self.asked: list[Asked] = []
        self.reached: list[Asked] = []
        self._to = urlsplit(endpoint)
        self._lock = threading.Lock()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02})
        self._thread.start()
        self.endpoint = f"http://127.0.0.1:{self._server.server_port}{self._to.path}"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def forget(self) -> None:
        """Begin a new count, and pass everything on."""
        with self._lock:
            self.asked.clear()
            self.reached.clear()
            self.script = lambda _asked: Pass()

    def _note(self, method: str, path: str, headers: dict[str, str]) -> tuple[Asked, Action]:
        with self._lock:
            asked = Asked(
                number=len(self.asked) + 1,
                method=method,
                path=path,
                headers=headers,
                length=int(headers.get("content-length", "0")),
            )
            self.asked.append(asked)
            action = self.script(asked)
            if not isinstance(action, Answer | CutRequest):
                self.reached.append(asked)
            return asked, action

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        proxy = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def one(self) -> None:
                headers = {name.lower(): value for name, value in self.headers.items()}
                asked, action = proxy._note(self.command, self.path, headers)
                if isinstance(action, CutRequest):
                    self.rfile.read(min(action.after, asked.length))
                    self.reset()
                    return
                body = self.rfile.read(asked.length)
                if isinstance(action, Answer):
                    self.give(action, len(action.body))
                    return
                answer = proxy._forward(asked, body)
                match action:
                    case Lose():
                        self.reset()
                    case CutAnswer(after):
                        self.give(answer, after)
                        self.reset()
                    case Change(by):
                        changed = by(answer)
                        self.give(changed, len(changed.body))
                    case _:
                        self.give(answer, len(answer.body))

            do_GET = do_PUT = do_HEAD = do_POST = do_DELETE = one  # noqa: N815  # names the library calls

            def give(self, answer: Answer, most: int) -> None:
                self.send_response_only(answer.status)
                names = {name.lower() for name in answer.headers}
                for name, value in answer.headers.items():
                    self.send_header(name, value)
                if "content-length" not in names:
                    self.send_header("Content-Length", str(len(answer.body)))
                self.end_headers()
                self.wfile.write(answer.body[:most])

            def reset(self) -> None:
                self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                self.close_connection = True
                self.connection.close()

            def handle(self) -> None:  # one side goes away: that is what this proxy is for
                with contextlib.suppress(OSError, ValueError):
                    super().handle()

            def finish(self) -> None:
                with contextlib.suppress(OSError, ValueError):
                    super().finish()

            def log_message(self, *_words: object) -> None:
                pass

        return Handler

    def _forward(self, asked: Asked, body: bytes) -> Answer:
        server = http.client.HTTPConnection(self._to.hostname or "", self._to.port, timeout=60)
        try:
            server.request(asked.method, asked.path, body=body, headers=asked.headers)
            said = server.getresponse()
            content = said.read()
            headers = {name: value for name, value in said.getheaders() if name.lower() not in _HOP}
            if asked.method == "HEAD":
                headers["Content-Length"] = said.getheader("Content-Length", "0")
            return Answer(status=said.status, headers=headers, body=content)
        finally:
            server.close()
