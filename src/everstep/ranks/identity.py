"""This process's number, and how many there are."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass

from everstep.config import ProcessSettings
from everstep.errors import UsageError

__all__ = ["Identity", "who_am_i"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """One of ``world`` ranks, counted from 0; on its node one of ``local_world``, where the launcher says so.

    ``contiguous``: the launcher numbers the ranks of a node one after another, as torchrun does.
    """

    rank: int
    world: int
    local_rank: int | None = None
    local_world: int | None = None
    contiguous: bool = False


def who_am_i(told: ProcessSettings) -> Identity:
    """The identity of this process, by the first of these that knows it.

    torch.distributed, then jax.distributed, where they are initialised; ``RANK`` and ``WORLD_SIZE``; Slurm's variables
    of a step that srun started; Open MPI's; else it is alone. Raises `UsageError` when the first three do
    not agree, or one makes no sense, naming what each says.
    """
    groups = list(_groups())
    environment = " and ".join(
        f"{name}={value}"
        for name, value in (("RANK", told.rank), ("WORLD_SIZE", told.world_size))
        if value is not None
    )
    for who, rank, world in groups:
        first, *_ = groups
        if (rank, world) != first[1:]:
            raise _disagree(
                f"{first[0]} says rank {first[1]} of {first[2]}", f"{who} says rank {rank} of {world}"
            )
        if told.rank not in {None, rank} or told.world_size not in {None, world}:
            raise _disagree(f"{who} says rank {rank} of {world}", f"the environment says {environment}")
    if groups:
        return _identity(told, groups[0][1], groups[0][2])
    if told.rank is not None and told.world_size is not None:
        return _identity(told, told.rank, told.world_size)
    if told.rank is not None or told.world_size is not None:
        raise UsageError(
            f"{environment} is set, and {'RANK' if told.rank is None else 'WORLD_SIZE'} is not",
            hint="let the launcher set both, or neither; or make the Checkpointer after init_process_group",
        )
    for rank, world, local in _launchers(told):
        return _identity(told, rank, world, local)
    return Identity(rank=0, world=1)


def _disagree(one: str, other: str) -> UsageError:
    return UsageError(f"{one}, but {other}", hint="unset what is wrong, or start all ranks by one launcher")


def _identity(told: ProcessSettings, rank: int, world: int, local: int | None = None) -> Identity:
    return Identity(
        rank=rank,
        world=world,
        local_rank=told.local_rank if told.local_rank is not None else local,
        local_world=told.local_world_size,
        contiguous=told.torchelastic_run_id is not None,
    )


def _groups() -> Iterator[tuple[str, int, int]]:
    """What each framework says that has initialised its processes: its name, the rank, the world."""
    torch = sys.modules.get("torch.distributed")
    if torch is not None and torch.is_available() and torch.is_initialized():
        yield "torch.distributed", torch.get_rank(), torch.get_world_size()
    if "jax" in sys.modules:
        from everstep.ranks.jax_exchange import jax_identity  # noqa: PLC0415  # only where jax is in use

        found = jax_identity()
        if found is not None:
            yield "jax.distributed", found.rank, found.world


def _launchers(told: ProcessSettings) -> Iterator[tuple[int, int, int | None]]:
    """Rank, world and local rank by variables that a launcher sets for programs of other kinds too."""
    slurm = told.slurm_step_num_tasks or told.slurm_ntasks
    if told.slurm_step_id is not None and told.slurm_procid is not None and slurm is not None:
        _check("SLURM_PROCID", told.slurm_procid, slurm)
        yield told.slurm_procid, slurm, told.slurm_localid
    if told.ompi_rank is not None and told.ompi_size is not None:
        _check("OMPI_COMM_WORLD_RANK", told.ompi_rank, told.ompi_size)
        yield told.ompi_rank, told.ompi_size, told.ompi_local_rank


def _check(name: str, rank: int, world: int) -> None:
    if rank >= world:
        raise UsageError(
            f"{name}={rank} is not below the number of ranks, {world}",
            hint="let the launcher set both, or set RANK and WORLD_SIZE yourself",
        )
