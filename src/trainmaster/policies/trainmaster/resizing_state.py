"""What is remembered of resizing: a frozen value, for the memo."""

from __future__ import annotations

from dataclasses import dataclass, field

from trainmaster.mechanisms.speedup_curves import MeasuredSpeeds
from trainmaster.model.codec import stored_as
from trainmaster.model.plan import FrozenMap


@stored_as("resizing.Memo")
@dataclass(frozen=True, slots=True)
class ResizingMemo:
    """What is remembered: measured speeds, and when runs were last resized."""

    measured: MeasuredSpeeds = field(default_factory=MeasuredSpeeds)
    resized_ms: FrozenMap[str, int] = field(default_factory=FrozenMap)
    tried: FrozenMap[str, int] = field(default_factory=FrozenMap)
    """By model and nominal size, or by job: the most GPUs that were seen at work."""
    due_ms: int | None = None
    """When a run that could grow will have rested, if GPUs are idle."""


NOTHING_RESIZED = ResizingMemo()
