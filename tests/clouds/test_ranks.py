"""Several ranks on each cloud; each opens the store by itself, by its URL."""

import torch

import everstep as es
from tests.clouds.rank_trainings import SHAPE
from tests.zygote import rendezvous

HERE = "tests.clouds.rank_trainings"


def told(zygote, function, *args, **how):
    """Each of two ranks' words; a rank that fails is shown."""
    ended = zygote.run(f"{HERE}:{function}", *args, world=2, **how)
    assert [one.code for one in ended] == [0, 0], "\n".join(one.printed for one in ended)
    return [one.told for one in ended]


def quiet(_event) -> None:
    """Listens to nothing."""


def test_two_ranks_save_and_restore_in_another_layout(zygote, cloud):
    """Over gloo's store; what they saved is loaded whole by one process."""
    assert told(zygote, "sharded", rendezvous(), cloud.url, **cloud.environ) == [[[True] * 3]] * 2
    state = es.load(cloud.url, "r", listener=quiet)
    assert torch.equal(state["w"], torch.arange(SHAPE[0] * SHAPE[1], dtype=torch.float32).reshape(SHAPE))
    assert state["mine"] == {0: 0, 1: 1}


def test_ranks_that_talk_through_the_store(zygote, s3):
    """Without any process group, by ``EVERSTEP_LAUNCH`` alone; a second launch goes on."""
    for step in range(2):
        launch = {"EVERSTEP_LAUNCH": f"launch-{step}", "EVERSTEP_PATIENCE": "60"}
        assert told(zygote, "alone", s3.url, **launch, **s3.environ) == [[[step, True]]] * 2
    state = es.load(s3.url, "r", listener=quiet)
    assert torch.equal(state["mine"][1], torch.full((3,), 21.0))
