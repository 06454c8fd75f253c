# reason: model-diverged
import sys

print("epoch 3 step 120 loss nan")
print("ERROR: NaN loss detected, aborting", file=sys.stderr)
sys.exit(1)
