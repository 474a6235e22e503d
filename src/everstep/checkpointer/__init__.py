"""The conductor: it takes a training through restore, save and loop, over all the rooms below."""
