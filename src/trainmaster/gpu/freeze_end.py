"""Where a run is after a freeze or a thaw: the words of the checkpoint program and of supervisors."""

from __future__ import annotations

FROZEN, RUNNING, STUCK = "frozen", "running", "stuck"
"""Its devices are free; it goes on as before; neither."""
