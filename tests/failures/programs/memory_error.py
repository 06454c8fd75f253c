# reason: host-out-of-memory
"""A list is larger than the memory."""

samples = bytearray(1 << 60)
