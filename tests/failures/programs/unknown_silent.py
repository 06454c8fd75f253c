# reason: unknown
"""Ends without a word."""

import sys

sys.exit(3)
