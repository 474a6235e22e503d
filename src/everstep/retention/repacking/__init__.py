"""The steps of a repack."""
