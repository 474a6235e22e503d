"""Bytes on their way: staging memory, hashing, upload, download."""
