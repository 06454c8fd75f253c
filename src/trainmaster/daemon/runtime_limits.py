"""Time limits: which jobs have a `max_runtime`, and when each is over."""

from __future__ import annotations

from collections.abc import Iterator

from trainmaster.daemon.live_job import LiveJob
from trainmaster.daemon.report_events import LoggedEvent
from trainmaster.model import events as e
from trainmaster.model.stop_reasons import EndCode, EndReason
from trainmaster.model.units import SECOND
from trainmaster.text.stop_messages import end_sentence


class RuntimeLimits:
    """Jobs with a `max_runtime`."""

    def __init__(self) -> None:
        self._limited: dict[str, LiveJob] = {}

    def note(self, live: LiveJob) -> bool:
        """Watch it, if it has a limit; whether it has."""
        if live.recipe.max_runtime_ms is None:
            return False
        self._limited[live.id] = live
        return True

    def forget(self, job: str) -> None:
        self._limited.pop(job, None)

    def overdue(self, now: int) -> Iterator[LoggedEvent]:
        """Withdraw jobs that have reached their limit; each once."""
        for live in list(self._limited.values()):
            most = live.recipe.max_runtime_ms
            if most is not None and not live.is_prerun and live.ran_ms(now) >= most:
                del self._limited[live.id]
                end = EndReason(EndCode.TIME_LIMIT, limit_s=most / SECOND)
                detail = {"end": end.code, "why": end_sentence(end)}
                yield LoggedEvent(e.JobWithdrawn(live.id), detail, end)

    def next_due(self, now: int) -> int | None:
        times = [
            now + max(1, (live.recipe.max_runtime_ms or 0) - live.ran_ms(now))
            for live in self._limited.values()
            if live.history.since_ms is not None and not live.is_prerun
        ]
        return min(times, default=None)
