"""Who a process is."""

import sys
import types

import pytest

from everstep.config import process_settings
from everstep.errors import UsageError
from everstep.ranks import Identity, who_am_i


def told(**variables):
    """What a launcher tells by these variables."""
    return process_settings({name: str(value) for name, value in variables.items()})


@pytest.fixture(autouse=True)
def _no_groups(monkeypatch):
    """Other tests of this process may have imported a framework; none is initialised here."""
    monkeypatch.delitem(sys.modules, "torch.distributed", raising=False)
    monkeypatch.delitem(sys.modules, "jax", raising=False)


def group(monkeypatch, rank, world):
    """What torch.distributed answers in a process group."""
    answers = {"is_available": True, "is_initialized": True, "get_rank": rank, "get_world_size": world}
    known = types.SimpleNamespace(**{name: lambda value=value: value for name, value in answers.items()})
    monkeypatch.setitem(sys.modules, "torch.distributed", known)


def test_without_a_launcher_a_process_is_alone():
    """Rank 0 of 1."""
    assert who_am_i(told()) == Identity(rank=0, world=1)


def test_torchrun_tells_rank_world_and_node():
    """RANK and WORLD_SIZE, LOCAL_RANK and LOCAL_WORLD_SIZE; torchrun numbers a node's ranks one after another."""
    found = who_am_i(told(RANK=5, WORLD_SIZE=8, LOCAL_RANK=1, LOCAL_WORLD_SIZE=4, TORCHELASTIC_RUN_ID="none"))
    assert found == Identity(rank=5, world=8, local_rank=1, local_world=4, contiguous=True)


def test_a_process_group_knows_best(monkeypatch):
    """A bare torch.multiprocessing sets no variables."""
    group(monkeypatch, 1, 4)
    assert who_am_i(told()) == Identity(rank=1, world=4)
    assert who_am_i(told(WORLD_SIZE=4)) == Identity(rank=1, world=4)
    assert who_am_i(told(SLURM_PROCID=0, SLURM_NTASKS=9, SLURM_STEP_ID=1)).rank == 1


def test_a_group_and_an_environment_that_disagree_are_named(monkeypatch):
    """Neither is guessed to be right."""
    group(monkeypatch, 1, 4)
    with pytest.raises(UsageError, match=r"rank 1 of 4.*RANK=0 and WORLD_SIZE=2"):
        who_am_i(told(RANK=0, WORLD_SIZE=2))


@pytest.mark.parametrize(
    ("variables", "words"),
    [
        ({"RANK": 1}, r"RANK=1 is set, and WORLD_SIZE is not"),
        ({"WORLD_SIZE": 4}, r"WORLD_SIZE=4 is set, and RANK is not"),
        ({"SLURM_STEP_ID": 0, "SLURM_PROCID": 4, "SLURM_NTASKS": 4}, "SLURM_PROCID=4"),
        ({"OMPI_COMM_WORLD_RANK": 2, "OMPI_COMM_WORLD_SIZE": 2}, "OMPI_COMM_WORLD_RANK=2"),
    ],
)
def test_half_an_identity_is_refused(variables, words):
    """A rank without a world, or beyond it, would overwrite another's words."""
    with pytest.raises(UsageError, match=words):
        who_am_i(told(**variables))


def test_a_rank_beyond_the_world_is_refused():
    """By number, when the environment is read."""
    with pytest.raises(UsageError, match="RANK=4 is not below WORLD_SIZE=4"):
        told(RANK=4, WORLD_SIZE=4)


def test_slurm_tells_it_in_a_step_that_srun_started():
    """The step's own number of tasks counts, not the job's; a batch script without srun is alone."""
    step = {"SLURM_PROCID": 3, "SLURM_NTASKS": 16, "SLURM_STEP_NUM_TASKS": 4, "SLURM_LOCALID": 1}
    assert who_am_i(told(SLURM_STEP_ID=0, **step)) == Identity(rank=3, world=4, local_rank=1)
    assert who_am_i(told(SLURM_PROCID=0, SLURM_NTASKS=16)) == Identity(rank=0, world=1)


def test_open_mpi_tells_it():
    """By the variables that mpirun sets."""
    mpi = {"OMPI_COMM_WORLD_RANK": 1, "OMPI_COMM_WORLD_SIZE": 2, "OMPI_COMM_WORLD_LOCAL_RANK": 1}
    assert who_am_i(told(**mpi)) == Identity(rank=1, world=2, local_rank=1)


def test_the_launchers_own_variables_win():
    """Under torchrun inside a Slurm step: its ranks, not Slurm's tasks."""
    slurm = {"SLURM_PROCID": 0, "SLURM_NTASKS": 2, "SLURM_STEP_ID": 0}
    assert who_am_i(told(RANK=7, WORLD_SIZE=16, **slurm)) == Identity(rank=7, world=16)
