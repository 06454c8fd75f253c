# reason: gpu-xid-error
"""The GPU has fallen off the bus."""

import sys

print(
    "NVRM: Xid (PCI:0000:3b:00): 79, pid=4411, name=python, GPU has fallen off the bus.", flush=True
)
sys.exit(1)
