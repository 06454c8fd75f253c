# reason: disk-full
"""The disk is full."""

with open("/dev/full", "w") as file:
    file.write("a checkpoint")
