# reason: unknown
import sys

print("phase 3 finished")
sys.exit(42)
