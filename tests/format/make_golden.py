"""Write the golden files: ``python -m tests.format.make_golden``. Only for a new version; never to mend a test."""

from __future__ import annotations

from pathlib import Path

from everstep.format.wire import to_bytes
from tests.format.examples import OBJECTS, pack_header

if __name__ == "__main__":
    folder = Path(__file__).parent / "golden" / "v1"
    folder.mkdir(parents=True, exist_ok=True)
    for name, struct in OBJECTS.items():
        (folder / f"{name}.json").write_bytes(to_bytes(struct))
    (folder / "pack-header.safetensors").write_bytes(pack_header())
