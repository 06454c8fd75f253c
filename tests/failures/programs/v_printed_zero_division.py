# reason: semantic-error
import os
import sys
import traceback


def mean(values):
    return sum(values) / len(values)


try:
    mean([])
except Exception:
    print("Unhandled exception in the training loop", file=sys.stderr)
    traceback.print_exc()
    sys.stderr.flush()
    os._exit(1)
