# reason: model-diverged
import math
import sys

loss = 3.0
for step in range(1, 2000):
    loss = loss * 1e300
    print(f"step {step} loss {loss}")
    if not math.isfinite(loss):
        print(f"Loss is {loss}, stopping training")
        sys.exit(1)
