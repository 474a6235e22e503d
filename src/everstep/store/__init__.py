"""Places for objects behind one interface: local disk, memory, clouds, and wrappers around them.

Import from the file that has it: a local store must not cost the start-up of a cloud.
"""
