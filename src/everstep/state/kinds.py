"""The kinds of values that a training state is made of, in the order in which they are asked."""

from __future__ import annotations

import importlib.util
import sys
from dataclasses import dataclass
from typing import Protocol

from everstep.format.entries import Tensor
from everstep.state.containers import DataclassKind, DictKind, ListKind, NamedTupleKind
from everstep.state.flattening import Writer
from everstep.state.generators import GeneratorKind
from everstep.state.memory import Fresh
from everstep.state.named_states import NamedStateBuilder
from everstep.state.numpy_arrays import NumpyFresh, RawFresh
from everstep.state.numpys import NumpyArrayKind, NumpyScalarKind
from everstep.state.objects import ObjectKind
from everstep.state.per_rank import PerRankKind
from everstep.state.plain_values import PlainKind
from everstep.state.restoring import Builder, Reader
from everstep.state.rng import RNGKind
from everstep.state.stage import StageKind
from everstep.state.torch_values import TorchValueKind

__all__ = ["Kind", "Kinds", "fresh", "known"]


class Kind(Writer, Reader, Protocol):
    """A kind of live value: written down and put back."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kinds:
    """The kinds of live values, and the makers of saved ones."""

    live: tuple[Kind, ...]
    builders: tuple[Builder, ...]


def known() -> Kinds:
    """All kinds; those of torch and jax where the program has imported them already."""
    plain, scalar, torch_value = PlainKind(), NumpyScalarKind(), TorchValueKind()
    nests = (DictKind(), ListKind(), NamedTupleKind(), DataclassKind())
    live: list[Kind] = [plain, *nests[:2]]  # exact types, so these come first: most values are theirs
    if sys.modules.get("torch") is not None:
        from everstep.state.modules import ModuleKind  # noqa: PLC0415 - torch is imported only where it is used
        from everstep.state.optimizers import OptimizerKind  # noqa: PLC0415 - as above
        from everstep.state.tensors import TensorKind  # noqa: PLC0415 - as above

        live += [TensorKind(), ModuleKind(), OptimizerKind()]
    if sys.modules.get("jax") is not None:
        from everstep.state.jax_arrays import JaxKind  # noqa: PLC0415 - jax is imported only where it is used

        live.append(JaxKind())
    live += [
        NumpyArrayKind(),
        scalar,
        PerRankKind(),
        StageKind(),
        RNGKind(),
        torch_value,
        GeneratorKind(),
        ObjectKind(),
        *nests[2:],
    ]
    return Kinds(live=tuple(live), builders=(plain, scalar, torch_value, NamedStateBuilder(), *nests))


def fresh(entry: Tensor, framework: str) -> Fresh:
    """New memory for an array: of its framework where it is installed, else of NumPy."""
    if framework == "raw":
        return RawFresh(entry)
    if framework == "torch" and importlib.util.find_spec("torch") is not None:
        from everstep.state.torch_arrays import TorchFresh  # noqa: PLC0415 - torch is imported only where it is used

        return TorchFresh(entry)
    if framework == "jax" and importlib.util.find_spec("jax") is not None:
        from everstep.state.jax_arrays import JaxFresh  # noqa: PLC0415 - jax is imported only where it is used

        return JaxFresh(entry)
    return NumpyFresh(entry)
