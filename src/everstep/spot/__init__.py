"""Jobs that may be stopped at any instant: reached by signals, the environment and the store alone."""
