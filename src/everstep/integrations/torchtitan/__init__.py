"""torchtitan's trainer on everstep: `CheckpointManager`, by torchtitan's own seam."""

from everstep.integrations.torchtitan.manager import CheckpointManager

__all__ = ["CheckpointManager"]
