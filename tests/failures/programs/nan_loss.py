# reason: model-diverged
"""The loss is not a number, and the program stops."""

import math
import sys

loss = float("inf") - float("inf")
if not math.isfinite(loss):
    print(f"Loss is {loss}, stopping training")
    sys.exit(1)
