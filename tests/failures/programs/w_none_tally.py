# reason: unknown
import sys

print("12 checks done, 2 failures")
sys.exit(2)
