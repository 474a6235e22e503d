"""The retention policy that a run goes by."""

import pytest

from everstep.errors import RunNotFound, UsageError
from everstep.repository.attempts import claim
from everstep.repository.runs import ensure_run
from everstep.retention.standing import standing_policy
from tests.repository.worlds import world


def test_the_newest_launch_says_what_is_kept():
    """Its policy, whatever older launches and the run's beginning said."""
    repo = world()
    ensure_run(repo, "digits", keep="last 9")
    assert standing_policy(repo, "digits").text() == "last 9"
    claim(repo, "digits", owner="a", keep="last 3")
    claim(repo, "digits", owner="b", keep="last 2, daily 7")
    assert standing_policy(repo, "digits").text() == "last 2, daily 7"
    claim(repo, "digits", owner="c", keep="all")
    assert standing_policy(repo, "digits").keeps_all


def test_a_launch_without_a_policy_leaves_the_runs_own():
    """Not that of an older launch: who started without one wanted none of it."""
    repo = world()
    ensure_run(repo, "digits", keep="last 9")
    claim(repo, "digits", owner="a", keep="last 3")
    claim(repo, "digits", owner="b")
    assert standing_policy(repo, "digits").text() == "last 9"


def test_a_run_without_a_policy_has_none():
    """Which is not the same as one that keeps everything: prune asks for one."""
    repo = world()
    claim(repo, "digits", owner="a")
    assert standing_policy(repo, "digits") is None


def test_an_unknown_run_is_named():
    """Before anything is chosen."""
    with pytest.raises(RunNotFound, match="digits"):
        standing_policy(world(), "digits")


def test_a_policy_of_another_version_is_refused_with_its_words():
    """Nothing is deleted by a policy that is understood in half."""
    repo = world()
    claim(repo, "digits", owner="a", keep="last 3, yearly 2")
    with pytest.raises(UsageError, match="yearly 2") as caught:
        standing_policy(repo, "digits")
    assert "--keep" in caught.value.hint
