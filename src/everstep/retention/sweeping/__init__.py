"""The steps of a sweep."""
