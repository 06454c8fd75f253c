# reason: killed-by-signal
"""Somebody kills it."""

import os

os.kill(os.getpid(), 9)
