"""What a user's program sees, for type checkers: `make types` checks this file under two of them."""

from datetime import timedelta
from typing import Any, assert_type

import everstep as es
from everstep.store.protocol import Store


def trained(store: Store, model: object) -> int:
    """The names of the front page, and the types they give."""
    state = {"model": model, "epoch": 0, "rng": es.PerRank(es.RNG())}
    with es.Checkpointer("./checkpoints", run="first", every=timedelta(minutes=10)) as ckpt:
        assert_type(ckpt, es.Checkpointer)
        for step in ckpt.loop(state, until=10):
            assert_type(step, int)
            ckpt.log(loss=0.5, phase="warm-up")
        assert_type(ckpt.checkpoints(), list[es.Checkpoint])
        assert_type(ckpt.latest(), es.Checkpoint | None)

    by_hand = es.Checkpointer(store, "second", every=100, keep="last 3", on_corrupt="fail")
    start = assert_type(by_hand.restore(state, strict=False, skip=["head"]), int | None)
    pending = assert_type(by_hand.save(1, state, metrics={"loss": 0.5}), es.Pending)
    assert_type(pending.wait(), es.Checkpoint | None)
    assert_type(pending.done, bool)
    by_hand.close()

    try:
        assert_type(es.load("./checkpoints", run="first", step=None), Any)
    except es.EverstepError as error:
        assert_type(error.hint, str)
    return start or 0
