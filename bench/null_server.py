"""A server that swallows every PUT and serves zeros to every GET: the ceiling a store's client is measured at.

It speaks just enough of S3 and Azure Blob storage for one client library; nothing is kept. Run it as a process
of its own, so that the client's CPU seconds are the client's alone: ``python bench/null_server.py PORT``; it
prints the port it listens on.
"""

import contextlib
import re
import socket
import sys
import threading

__all__ = ["serve"]

PIECE = 1 << 20
COMMON = (
    'ETag: "0"\r\nLast-Modified: Thu, 01 Jan 2026 00:00:00 GMT\r\nx-ms-request-server-encrypted: true\r\n'
)
RANGE = re.compile(rb"(?:x-ms-)?range: bytes=(\d+)-(\d+)", re.IGNORECASE)
LENGTH = re.compile(rb"content-length: (\d+)", re.IGNORECASE)


def serve(port: int = 0) -> None:
    """Serve on loopback until the process is ended, one thread for each connection."""
    listening = socket.create_server(("127.0.0.1", port), backlog=128)
    print(listening.getsockname()[1], flush=True)
    while True:
        connection, _ = listening.accept()
        threading.Thread(target=_connection, args=(connection,), daemon=True).start()


def _connection(connection: socket.socket) -> None:
    with connection, contextlib.suppress(OSError):  # a client that goes away ends it
        _talk(connection)


def _talk(connection: socket.socket) -> None:
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sink, zeros = bytearray(PIECE), bytes(64 << 20)
    view, held = memoryview(sink), b""
    while True:
        while b"\r\n\r\n" not in held:
            piece = connection.recv(PIECE)
            if not piece:
                return
            held += piece
        head, _, held = held.partition(b"\r\n\r\n")
        found = LENGTH.search(head)
        left = int(found[1]) if found else 0
        taken = min(left, len(held))
        left, held = left - taken, held[taken:]
        while left:
            left -= connection.recv_into(view, min(left, PIECE))
        if head.startswith(b"PUT"):
            status = "201 Created" if b"x-ms-" in head else "200 OK"
            connection.sendall(f"HTTP/1.1 {status}\r\n{COMMON}Content-Length: 0\r\n\r\n".encode())
            continue
        asked = RANGE.search(head)
        first, last = (int(asked[1]), int(asked[2])) if asked else (0, 0)
        size = last - first + 1
        connection.sendall(
            f"HTTP/1.1 206 Partial Content\r\n{COMMON}Content-Length: {size}\r\n"
            f"Content-Range: bytes {first}-{last}/{1 << 40}\r\n\r\n".encode()
        )
        connection.sendall(memoryview(zeros)[:size])


if __name__ == "__main__":
    serve(int(sys.argv[1]) if len(sys.argv) > 1 else 0)
