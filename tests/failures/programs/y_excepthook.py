# reason: semantic-error
import sys


def hook(kind, value, trace):
    print(f"CRITICAL uncaught exception {kind.__name__}: {value}", file=sys.stderr)


sys.excepthook = hook
config = {"a": 1}
print(config.a)
