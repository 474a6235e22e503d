"""Other tools and file forms: one file for each."""
