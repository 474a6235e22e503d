"""The nouns of a checkpoint and their bytes on disk. Pure: nothing here reads or writes storage."""
