# reason: permission-error
import os
import sys

try:
    raise PermissionError(13, os.strerror(13), "/shared/models/base")
except OSError as error:
    sys.exit(f"cannot start: {error}")
