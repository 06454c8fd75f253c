"""Headers of the API that are its own."""

from __future__ import annotations

STORE_HEADER = "Trainmaster-Store"
"""Which database a manager leads, in each of its answers; empty from a standby."""
SESSION_HEADER = "Trainmaster-Session"
"""Whose session the page process asks for, on the socket that is for it alone; browsers' own are dropped."""
