"""Keys, attempts, the commit protocol, the catalogue, verify, fork, tags, copy: nouns on a Store, no tensors."""
