"""Pure planners: which rank writes what, and which ranges a restore reads. Nothing here touches bytes."""

from __future__ import annotations

from everstep.plan.load import plan_load
from everstep.plan.locate import locate
from everstep.plan.requests import ChunkRead, Read
from everstep.plan.save import SavePlan, plan_save

__all__ = ["ChunkRead", "Read", "SavePlan", "locate", "plan_load", "plan_save"]
