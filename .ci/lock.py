"""Chooses the newest versions that fit pyproject.toml, and writes them to constraints.txt: ``make lock``."""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
WITHOUT_DEPENDENCIES = {"torchtitan": "0.3.0"}
"""What the Makefile installs alone: it asks for a hundred packages, and its parts that are tested need two."""
HEADER = """\
# Every package that `make` installs, and its version. Made by `make lock`; do not edit.
"""


def main() -> None:
    """Resolve without installing, and write what pip would install."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        wanted = ["--group", "build", "--group", "test", "--group", "more", "--editable", "."]
        how = ["--dry-run", "--ignore-installed", "-qq", "--report", str(report)]
        subprocess.run([sys.executable, "-m", "pip", "install", *how, *wanted], cwd=ROOT, check=True)
        chosen = json.loads(report.read_text())["install"]
    pins = {
        # a local version (+cpu) names one machine's build; the pin is for all
        each["metadata"]["name"].lower().replace("_", "-"): each["metadata"]["version"].partition("+")[0]
        for each in chosen
        if not each["download_info"].get("dir_info")
    }
    gpu = sorted(name for name in pins if name.startswith(("nvidia-", "cuda-")))
    if gpu:
        sys.exit(f"refused: these come with a torch built for CUDA, and belong in no lock: {', '.join(gpu)}")
    pins |= WITHOUT_DEPENDENCIES
    lines = "".join(f"{name}=={version}\n" for name, version in sorted(pins.items()))
    (ROOT / "constraints.txt").write_text(HEADER + lines)


if __name__ == "__main__":
    main()
