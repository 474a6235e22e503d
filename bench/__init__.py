"""Measurements: this package beside the raw limits of the machine and beside its peers, in one run."""
