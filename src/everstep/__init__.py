"""Checkpoint storage for distributed training: stop at any instant, go on bit for bit."""
