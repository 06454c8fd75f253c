# reason: unknown
import sys

print("error: experiment 12 is frozen", file=sys.stderr)
sys.exit(1)
