"""The training states in the frozen store."""

from __future__ import annotations

import enum
import pathlib
from collections import OrderedDict, namedtuple
from datetime import UTC, datetime

import ml_dtypes
import numpy as np
import torch

import everstep as es

Fields = namedtuple("Fields", ["rate", "decay"])  # noqa: PYI024 - plain values do


class Phase(enum.Enum):
    """A stage of training."""

    WARM = "warm"


def state_at(step):
    """A small state with every kind of leaf; some of it changes with the step, most of it does not."""
    weight = torch.arange(24.0).reshape(4, 6)
    return {
        "model": OrderedDict(weight=weight, tied=weight, turned=weight.T, part=torch.arange(20.0)[2:9:3]),
        "half": torch.arange(5).to(torch.bfloat16) + step,
        "eighth": torch.tensor([1.0, -2.0]).to(torch.float8_e4m3fn),
        "flag": torch.tensor([True, False]),
        "scalar": torch.tensor(step, dtype=torch.int64),
        "empty": torch.zeros(0, 3),
        "numpy": {
            "complex": np.array([1 + 2j, complex("nan")]),
            "big-endian": np.arange(3, dtype=">i4"),
            "days": np.array(["2026-01-01"], "M8[D]"),
            "words": np.array(["a", "\u00e9"]),
            "half": np.array([1.5], ml_dtypes.bfloat16),
            "scalar": np.float32(0.1),
        },
        "step": step,
        "values": [None, True, 2**70, -0.0, float("inf"), 1j, "\ud800", b"\0x", (1, [2])],
        "more": {
            1: {2, 3},
            (1, "a"): frozenset({4}),
            None: datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=UTC),
            "": pathlib.PurePosixPath("/x"),
            "a/b~c": Fields(0.1, (0.9, 0.99)),
            "phase": Phase.WARM,
        },
        "long": "\u00e9" * 4100,
        "rank": es.PerRank({"position": step}),
    }
