"""What keeps a device set aside after a fact about it."""

from __future__ import annotations

from trainmaster.model import events as e
from trainmaster.model.device_aside import AsideWhy, GpuAside, stated_only_in_words


def aside_after(
    before: GpuAside | None, event: e.GpuSetAside | e.GpuReturned, now: int
) -> GpuAside | None:
    """Since when and why it is set aside; None: it is not."""
    if isinstance(event, e.GpuReturned):
        return None if before is None or event.cause is None else before.without(event.cause)
    if event.cause is None:
        new = stated_only_in_words(event.why)
    else:
        new = AsideWhy(event.cause, event.why, event.is_tested)
    return GpuAside(now, (new,)) if before is None else before.also(new)
