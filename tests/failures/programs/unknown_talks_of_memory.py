# reason: unknown
"""Talks about memory, and ends for another reason."""

import sys

print("note: this model was once out of memory, and 4 workers were killed; no longer")
print("step 1 loss 0.3 (CUDA memory 70%, no timeout, disk not full)")
print("step 2 loss 0.2")
sys.exit(1)
