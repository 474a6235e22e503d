"""Launches of forked ranks that must all end well, and say the same."""

from tests.zygote import rendezvous

__all__ = ["rendezvous", "told", "told_by_each"]


def told_by_each(zygote, function, *args, world, **how):
    """Each rank's words; a rank that fails is shown."""
    ended = zygote.run(function, rendezvous(), *args, world=world, **how)
    assert [one.code for one in ended] == [0] * world, "\n".join(
        f"rank {rank}: {one.code}\n{one.printed}" for rank, one in enumerate(ended)
    )
    return [one.told for one in ended]


def told(zygote, function, *args, world, **how):
    """The words that all ranks have told alike."""
    words = told_by_each(zygote, function, *args, world=world, **how)
    assert all(word == words[0] for word in words), words
    return words[0]
