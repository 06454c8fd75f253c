# reason: time-limit
"""A file grows beyond the limit of the shell."""

import resource
import tempfile

resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
with tempfile.TemporaryFile(buffering=0) as file:
    while True:
        file.write(b"x" * 400)
