# reason: file-limit
"""Files are never closed."""

import resource

resource.setrlimit(resource.RLIMIT_NOFILE, (32, 32))
files = [open("/dev/null") for _ in range(100)]
