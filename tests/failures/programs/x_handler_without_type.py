# reason: missing-file
import sys

try:
    open("/data/val/labels.csv")
except Exception as error:
    print(f"fatal: {error}", file=sys.stderr)
    sys.exit(1)
