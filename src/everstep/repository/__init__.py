"""repository."""
