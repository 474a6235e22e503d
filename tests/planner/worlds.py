"""A question to ask, with one thing changed."""

from everstep.cadence.outages import Exponential
from everstep.planner.question import Question
from everstep.prices import prices
from everstep.retention.policy import parse_keep

__all__ = ["asked"]


def asked(**changes) -> Question:
    """15 GB on one machine that fails every four hours, kept on Azure."""
    given = {
        "state_bytes": 15 * 10**9,
        "stall_s": 2.0,
        "bandwidth": 1e9,
        "failures": Exponential(mtbf_s=4 * 3600.0),
        "restart_s": 180.0,
        "prices": prices("azure-hot"),
        "keeps": (parse_keep("last 3"),),
    }
    return Question(**(given | changes))
