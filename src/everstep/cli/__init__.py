"""The command line: one module per verb, loaded when it is called."""

from __future__ import annotations

from everstep.cli.entry import main

__all__ = ["main"]
