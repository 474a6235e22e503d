"""fake-gcs-server, with the XML interface in front that it lacks: ``gcs_front.py BINARY PORT``.

Google's storage has two interfaces. obstore speaks XML for objects, fake-gcs-server knows nearly only JSON.
This program starts fake-gcs-server and puts each XML request to it as the JSON request of the same meaning;
objects, lists, generations and conditions are fake-gcs-server's. Other requests pass through unchanged.
"""

import http.client
import json
import os
import subprocess
import sys
import threading
import time
import urllib.parse
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from xml.sax.saxutils import escape

PASSED = ("Content-Type", "Content-Range", "Last-Modified", "ETag", "X-Goog-Generation", "X-Goog-Hash")


class Front(BaseHTTPRequestHandler):
    """One connection of a client, and one to fake-gcs-server."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    upstream_port = 0
    # Conditions are checked and applied in two steps there: two creates at once could both succeed.
    creating = threading.Lock()

    def log_message(self, *_words) -> None:
        """Say nothing of each request."""

    def setup(self) -> None:
        """Open the connection to fake-gcs-server beside the client's."""
        super().setup()
        self.upstream = http.client.HTTPConnection("127.0.0.1", self.upstream_port, timeout=120)

    def finish(self) -> None:
        """Close both."""
        self.upstream.close()
        super().finish()

    def do_PUT(self) -> None:
        """Create or replace an object."""
        if self._json():
            return self._pass_on()
        bucket, name = self._object()
        content = self.rfile.read(int(self.headers["Content-Length"]))
        kind = self.headers.get("Content-Type", "application/octet-stream")
        mark = "e" + os.urandom(16).hex()
        body = b"".join(
            (
                f"--{mark}\r\nContent-Type: application/json\r\n\r\n{json.dumps({'name': name})}\r\n".encode(),
                f"--{mark}\r\nContent-Type: {kind}\r\n\r\n".encode(),
                content,
                f"\r\n--{mark}--\r\n".encode(),
            )
        )
        query = {"uploadType": "multipart", "name": name}
        if (generation := self.headers.get("x-goog-if-generation-match")) is not None:
            query["ifGenerationMatch"] = generation
        with self.creating:
            status, _, answer = self._ask(
                "POST",
                f"/upload/storage/v1/b/{bucket}/o?{urllib.parse.urlencode(query)}",
                body,
                {"Content-Type": f"multipart/related; boundary={mark}"},
            )
        if status != http.HTTPStatus.OK:
            return self._refuse(status, answer)
        made = json.loads(answer)
        return self._answer(200, {"ETag": f'"{made["etag"]}"', "x-goog-generation": str(made["generation"])})

    def do_GET(self) -> None:
        """An object, a range of one, or a list."""
        if self._json():
            return self._pass_on()
        bucket, name = self._object()
        if not name:
            return self._list(bucket)
        wanted = {"Range": self.headers["Range"]} if "Range" in self.headers else {}
        path = f"/download/storage/v1/b/{bucket}/o/{urllib.parse.quote(name, safe='')}?alt=media"
        status, headers, body = self._ask("GET", path, b"", wanted)
        if status not in {200, 206}:
            return self._refuse(status, body)
        return self._answer(status, {key: headers[key] for key in PASSED if key in headers}, body)

    do_HEAD = do_GET  # noqa: N815 - the name that http.server asks for

    def do_DELETE(self) -> None:
        """Remove an object."""
        if self._json():
            return self._pass_on()
        bucket, name = self._object()
        status, _, body = self._ask(
            "DELETE", f"/storage/v1/b/{bucket}/o/{urllib.parse.quote(name, safe='')}", b"", {}
        )
        return self._answer(204, {}) if status in {200, 204} else self._refuse(status, body)

    def do_POST(self) -> None:
        """Only the JSON interface has these."""
        self._pass_on()

    def _list(self, bucket: str) -> None:
        asked = dict(urllib.parse.parse_qsl(urllib.parse.urlsplit(self.path).query))
        names = {
            "prefix": "prefix",
            "delimiter": "delimiter",
            "continuation-token": "pageToken",
            "max-keys": "maxResults",
            "start-after": "startOffset",
        }
        query = {names[key]: value for key, value in asked.items() if key in names}
        status, _, body = self._ask(
            "GET", f"/storage/v1/b/{bucket}/o?{urllib.parse.urlencode(query)}", b"", {}
        )
        if status != http.HTTPStatus.OK:
            return self._refuse(status, body)
        page = json.loads(body)
        after = asked.get("start-after", "")
        contents = "".join(
            f"<Contents><Key>{escape(each['name'])}</Key><Size>{each['size']}</Size>"
            f"<LastModified>{each['updated']}</LastModified><ETag>{escape(each['etag'])}</ETag></Contents>"
            for each in page.get("items", [])
            if each["name"] > after
        )
        common = "".join(
            f"<CommonPrefixes><Prefix>{escape(prefix)}</Prefix></CommonPrefixes>"
            for prefix in page.get("prefixes", [])
        )
        token = page.get("nextPageToken", "")
        following = f"<NextContinuationToken>{escape(token)}</NextContinuationToken>" if token else ""
        truncated = str(bool(token)).lower()
        text = f"<ListBucketResult><IsTruncated>{truncated}</IsTruncated>{following}{contents}{common}</ListBucketResult>"
        return self._answer(200, {"Content-Type": "application/xml"}, text.encode())

    def _json(self) -> bool:
        return self.path.startswith(("/storage/", "/upload/", "/download/", "/_internal/"))

    def _object(self) -> tuple[str, str]:
        path = urllib.parse.unquote(urllib.parse.urlsplit(self.path).path)
        bucket, _, name = path.removeprefix("/").partition("/")
        return bucket, name

    def _pass_on(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        headers = {
            key: value for key, value in self.headers.items() if key.lower() not in {"host", "content-length"}
        }
        status, answered, answer = self._ask(self.command, self.path, body, headers)
        self._answer(status, {key: answered[key] for key in (*PASSED, "Location") if key in answered}, answer)

    def _ask(
        self, verb: str, path: str, body: bytes, headers: dict
    ) -> tuple[int, http.client.HTTPMessage, bytes]:
        self.upstream.request(verb, path, body=body or None, headers=headers)
        answer = self.upstream.getresponse()
        return answer.status, answer.headers, answer.read()

    def _refuse(self, status: int, words: bytes) -> None:
        text = f"<Error><Code>{http.HTTPStatus(status).name}</Code><Message>{escape(words.decode())}</Message></Error>"
        self._answer(status, {"Content-Type": "application/xml"}, text.encode())

    def _answer(self, status: int, headers: dict, body: bytes = b"") -> None:
        self.send_response(status)
        for key, value in headers.items():
            self.send_header(key, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)


class Server(ThreadingHTTPServer):
    """Takes many connections at once, as a cloud does."""

    request_queue_size = 128
    daemon_threads = True


def main() -> None:
    """Start fake-gcs-server, then serve until killed."""
    binary, port = sys.argv[1], int(sys.argv[2])
    # In memory: its folders cannot hold an object `a` beside an object `a/b`, as every cloud can.
    command = [binary, "-backend", "memory", "-scheme", "http", "-host", "127.0.0.1", "-port", str(port)]
    leash = str(Path(__file__).with_name("leash.py"))
    server = subprocess.Popen(
        [sys.executable, "-I", "-S", leash, str(os.getpid()), *command, "-log-level", "warn"]
    )
    deadline = time.monotonic() + 60
    while True:
        try:
            probe = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
            probe.request("GET", "/storage/v1/b?project=test")
            probe.getresponse().read()
            break
        except OSError:
            if server.poll() is not None or time.monotonic() > deadline:
                sys.exit(f"fake-gcs-server did not start: {server.poll()}")
            time.sleep(0.02)
    Front.upstream_port = port
    front = Server(("127.0.0.1", 0), Front)
    sys.stdout.write(f"started at http://127.0.0.1:{front.server_address[1]}\n")
    sys.stdout.flush()
    front.serve_forever()


if __name__ == "__main__":
    main()
