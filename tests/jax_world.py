"""Processes that are ranks of jax.distributed, or one process, with several CPU devices each."""

import importlib
import os
import socket
import subprocess
import sys
from pathlib import Path

import msgspec

ROOT = Path(__file__).parents[1]


def in_ranks(function, *args, ranks=1, devices=1, folder, timeout=120):
    """What ``function(*args)``, named ``module:name``, gives on each rank, by number; what fails is shown."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    env = {
        **{name: value for name, value in os.environ.items() if not name.startswith(("JAX_", "EVERSTEP_"))},
        "JAX_PLATFORMS": "cpu",
        "XLA_FLAGS": f"--xla_force_host_platform_device_count={devices} --xla_cpu_multi_thread_eigen=false",
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "src")]),
    }
    outs = [folder / f"{function.rpartition(':')[2]}-{n}" for n in range(ranks)]
    text = msgspec.json.encode(args).decode()
    running = []
    for n, out in enumerate(outs):
        words = [
            sys.executable,
            "-W",
            "error::UserWarning",
            __file__,
            function,
            text,
            str(n),
            str(ranks),
            str(port),
            str(out),
        ]
        with out.with_suffix(".log").open("wb") as log:
            running.append(subprocess.Popen(words, env=env, stdout=log, stderr=log))
    try:
        codes = [process.wait(timeout) for process in running]
    finally:
        for process in running:
            process.kill()
            process.wait()
    logs = [out.with_suffix(".log").read_text()[-4000:] for out in outs]
    assert not any(codes), "\n".join(
        f"rank {n}: {code}\n{log}" for n, (code, log) in enumerate(zip(codes, logs, strict=True))
    )
    return [msgspec.msgpack.decode(out.read_bytes()) for out in outs]


def main():
    """One rank."""
    function, text, rank, ranks, port, out = sys.argv[1:]
    import jax

    if int(ranks) > 1:
        jax.config.update("jax_cpu_collectives_implementation", "gloo")
        jax.distributed.initialize(f"127.0.0.1:{port}", int(ranks), int(rank))
    module, _, name = function.partition(":")
    found = getattr(importlib.import_module(module), name)(*msgspec.json.decode(text))
    Path(out).write_bytes(msgspec.msgpack.encode(found))


if __name__ == "__main__":
    main()
