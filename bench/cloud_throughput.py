"""PUT and GET of packs against a null server: this package's cloud stores beside raw sockets, in one run.

Prints GB/s and the client's CPU seconds per GB: medians of several. Run: ``python bench/cloud_throughput.py``.
"""

import mmap
import resource
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from everstep.config import settings
from everstep.events import silent
from everstep.store.cloud import CloudStore, open_cloud

PACK = 64 << 20
PACKS = 16
ROUNDS = 5


def touched(size: int) -> memoryview:
    """Memory that was written once, as staging memory is."""
    kept = mmap.mmap(-1, size)
    view = memoryview(kept)
    for at in range(0, size, 4096):
        view[at] = 1
    return view


def measured(work: Callable[[], object]) -> tuple[float, float]:
    """GB/s and CPU seconds per GB: medians over the rounds, after one round that does not count."""
    rates, costs = [], []
    for n in range(ROUNDS + 1):
        used, began = resource.getrusage(resource.RUSAGE_SELF), time.perf_counter()
        work()
        took, now = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_SELF)
        cpu = now.ru_utime + now.ru_stime - used.ru_utime - used.ru_stime
        if n:
            rates.append(PACK * PACKS / took / 1e9)
            costs.append(cpu / (PACK * PACKS / 1e9))
    return statistics.median(rates), statistics.median(costs)


def raw_put(port: int, body: memoryview) -> None:
    """The same bytes by a plain socket."""
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.sendall(f"PUT /x HTTP/1.1\r\nContent-Length: {len(body)}\r\n\r\n".encode())
        connection.sendall(body)
        connection.recv(4096)


def raw_get(port: int, into: memoryview) -> None:
    """The same bytes by a plain socket, into memory that is there."""
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.sendall(f"GET /x HTTP/1.1\r\nRange: bytes=0-{len(into) - 1}\r\n\r\n".encode())
        at = 0
        while at < len(into):
            at += connection.recv_into(into[at:])


def stores(port: int) -> dict[str, CloudStore]:
    """A store of each dialect on the null server."""
    environ = {
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
        "AWS_ACCESS_KEY_ID": "k",
        "AWS_SECRET_ACCESS_KEY": "s",
        "AZURE_STORAGE_ENDPOINT": f"http://127.0.0.1:{port}",
        "AZURE_STORAGE_ACCOUNT_NAME": "a",
        "AZURE_STORAGE_KEY": "c2VjcmV0",
    }
    chosen = settings(environ=environ).stores
    return {name: open_cloud(f"{name}://bucket/p", chosen, silent) for name in ("az", "s3")}


def main() -> None:
    """Start the server, measure, print a table."""
    command = [sys.executable, str(Path(__file__).with_name("null_server.py"))]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        port = int(server.stdout.readline())
        try:
            memory = touched(PACK)
            ranges = [touched(16 << 20) for _ in range(4)]
            print(f"{PACKS} packs of {PACK >> 20} MiB; GETs in ranges of 16 MiB; medians of {ROUNDS}")
            print(f"{'':24}{'PUT GB/s':>10}{'CPU-s/GB':>10}{'GET GB/s':>10}{'CPU-s/GB':>10}")
            for threads in (1, 2, 4):
                with ThreadPoolExecutor(threads) as pool:
                    ways = {
                        "raw socket": (
                            lambda _n: raw_put(port, memory),
                            lambda n, count=threads: raw_get(port, ranges[n % count]),
                        )
                    }
                    for name, store in stores(port).items():
                        ways[name] = (
                            lambda n, store=store: store.create(f"packs/{n}", memory),
                            lambda n, store=store, count=threads: store.get_range(
                                "packs/0", n * PACK, ranges[n % count]
                            ),
                        )
                    for name, (put, get) in ways.items():
                        puts = measured(lambda put=put, pool=pool: list(pool.map(put, range(PACKS))))
                        gets = measured(lambda get=get, pool=pool: list(pool.map(get, range(PACKS * 4))))
                        row = "".join(f"{value:10.2f}" for value in (*puts, *gets))
                        print(f"{name + f', {threads} threads':24}{row}")
        finally:
            server.terminate()


if __name__ == "__main__":
    main()
