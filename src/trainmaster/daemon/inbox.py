"""What has been asked for and heard since the last step, and a bell for who takes it in."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from trainmaster.daemon.live_job import LiveJob
from trainmaster.daemon.report_events import LoggedEvent
from trainmaster.model.engine_reports import Progressed, Report
from trainmaster.store.rows import KeyRow

PROGRESS_WAIT_S = 2.0
"""Progress alone is no reason to hurry: it is taken in with the next step, or after this long."""


@dataclass(slots=True)
class Request:
    """What somebody asked for: taken in by one step as a whole, answered when that is kept."""

    facts: Sequence[LoggedEvent] = ()
    newcomers: Sequence[LiveJob] = ()
    keys: Sequence[KeyRow] = ()
    is_late: bool = False
    """All that it is about had ended before it was taken in."""
    about: str | None = None
    """A job: if what is asked of it is refused, so is the request."""
    done: asyncio.Future[None] = field(
        default_factory=lambda: asyncio.get_running_loop().create_future()
    )


@dataclass(slots=True)
class Arrivals:
    """All that one step takes in, each kind in the order in which it came."""

    requests: list[Request] = field(default_factory=list)
    reports: list[tuple[Report, int]] = field(default_factory=list)
    followups: list[LoggedEvent] = field(default_factory=list)
    """Facts that follow from what was kept before."""


class Inbox:
    """Collects until somebody takes it all."""

    def __init__(self) -> None:
        self._post = Arrivals()
        self._bell = asyncio.Event()
        self._awaits_progress = False

    @property
    def is_urgent(self) -> bool:
        """Whether something is there that nobody should wait with."""
        return bool(self._post.requests or self._post.followups)

    def request(self, request: Request) -> None:
        self._post.requests.append(request)
        self.ring()

    def report(self, report: Report, number: int) -> None:
        self._post.reports.append((report, number))
        if not isinstance(report, Progressed):
            self.ring()
        elif not self._awaits_progress:
            self._awaits_progress = True
            self.ring_in(PROGRESS_WAIT_S)

    def follow_up(self, facts: Iterable[LoggedEvent]) -> None:
        self._post.followups.extend(facts)
        if self._post.followups:
            self.ring()

    def take(self) -> Arrivals:
        """Everything, and begin anew."""
        post, self._post, self._awaits_progress = self._post, Arrivals(), False
        return post

    def ring(self) -> None:
        self._bell.set()

    def ring_in(self, seconds: float) -> None:
        asyncio.get_running_loop().call_later(seconds, self.ring)

    async def wait(self, seconds: float | None) -> None:
        """For the bell, or at most so long; None = for ever."""
        if seconds is None or seconds > 0:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._bell.wait(), seconds)
        self._bell.clear()
