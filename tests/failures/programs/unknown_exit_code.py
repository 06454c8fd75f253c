# reason: unknown
"""A code of its own."""

import os

os._exit(42)
