# reason: core-dump
"""Native code gives up."""

import os

os.abort()
