"""What it costs to start, suspend, resume, move and resize a run, by the memory that has to move.

time = fixed part + bytes on a GPU / bandwidth. The GPUs of a run move their
memory side by side, so the fullest one sets the time.
"""

from __future__ import annotations

from dataclasses import dataclass

from trainmaster.model.units import SECOND, ceil_div


@dataclass(frozen=True, slots=True)
class PreemptionCost:
    """Fixed parts in ms on the run's GPUs, and how fast GPU memory goes out and comes back."""

    start_ms: int = 0
    """Launch for the first time, up to the first step."""
    suspend_ms: int = 0
    resume_ms: int = 0
    """Launch again from a checkpoint: after a suspension, a move, a failure or a lost node."""
    thaw_ms: int = 0
    """Resume after a freeze in place."""
    freeze_ms: int | None = None
    """Freeze in place; None = as long as to save and end."""
    resize_ms: int = 0
    can_freeze: bool = False
    """Suspend by freezing in place where possible, instead of save and end."""
    save_bytes_s: int | None = None
    """Bytes that leave a GPU in a second; None = memory does not matter."""
    load_bytes_s: int | None = None
    """Bytes that return to a GPU in a second."""
    saves_on_demand: bool = True
    """Whether a run that is told to end saves first; else it falls back to its last checkpoint."""

    saves_ever: bool = True
    """Whether runs save at all; else all of their work is lost when they are ended, and they are
    protected as live programs are that cannot save."""

    refuse_every: int = 0
    """Of so many freezes one is refused, and the run goes on; 0 = none."""

    def suspending(self, size: int, *, freezes: bool = False) -> int:
        """Milliseconds to release GPUs with this many bytes each; without saving, no bytes move."""
        if not freezes and not self.saves_on_demand:
            return self.suspend_ms
        fixed = self.freeze_ms if freezes and self.freeze_ms is not None else self.suspend_ms
        return fixed + _moving(size, self.save_bytes_s)

    def resuming(self, size: int) -> int:
        return self.resume_ms + _moving(size, self.load_bytes_s)

    def thawing(self, size: int) -> int:
        return self.thaw_ms + _moving(size, self.load_bytes_s)

    def resizing(self, size: int) -> int:
        """Save, and load again in the new shape."""
        moving = _moving(size, self.save_bytes_s) + _moving(size, self.load_bytes_s)
        return self.resize_ms + moving


def _moving(size: int, bytes_s: int | None) -> int:
    return 0 if bytes_s is None else ceil_div(size * SECOND, bytes_s)
