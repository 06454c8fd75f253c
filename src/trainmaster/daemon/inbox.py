"""The inbox of the driver: requests, reports and follow-up events since the last step."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from trainmaster.daemon.live_job import LiveJob
from trainmaster.daemon.report_events import LoggedEvent
from trainmaster.model.engine_reports import NodeReport, Progressed, Report
from trainmaster.store.rows import KeyRow, StoredJob

PROGRESS_WAIT_S = 2.0
"""Progress reports wait for the next step, but at most this long."""


@dataclass(slots=True)
class Request:
    """A request of a user: processed in one step as a whole, answered when that step is stored."""

    events: Sequence[LoggedEvent] = ()
    new_jobs: Sequence[LiveJob] = ()
    rows: Sequence[StoredJob] = ()
    """Jobs that are only recorded: they ended under a store that is gone."""
    is_whole: bool = False
    """All its events must be taken in before anything is decided, however many they are."""
    keys: Sequence[KeyRow] = ()
    is_taken: bool = False
    is_late: bool = False
    """All its jobs had ended before it was processed."""
    about: str | None = None
    """A job: if the controller refuses the action for it, the request is refused."""
    done: asyncio.Future[None] = field(
        default_factory=lambda: asyncio.get_running_loop().create_future()
    )


@dataclass(slots=True)
class Arrivals:
    """What one step processes, each kind in order of arrival."""

    requests: list[Request] = field(default_factory=list)
    reports: list[tuple[Report, int]] = field(default_factory=list)
    node_reports: list[NodeReport] = field(default_factory=list)
    followups: list[LoggedEvent] = field(default_factory=list)
    """Events that follow from earlier steps."""


class Inbox:
    """Collects until the driver takes everything."""

    def __init__(self) -> None:
        self._post = Arrivals()
        self._woken = asyncio.Event()
        self._awaits_progress = False

    @property
    def is_urgent(self) -> bool:
        """Whether something should be processed at once."""
        return bool(self._post.requests or self._post.followups or self._post.node_reports)

    def request(self, request: Request) -> None:
        """Take it in, once."""
        if request.is_taken:
            return
        request.is_taken = True
        self._post.requests.append(request)
        self.wake()

    def report(self, report: Report, number: int) -> None:
        self._post.reports.append((report, number))
        if not isinstance(report, Progressed):
            self.wake()
        elif not self._awaits_progress:
            self._awaits_progress = True
            self.wake_in(PROGRESS_WAIT_S)

    def node_report(self, report: NodeReport) -> None:
        self._post.node_reports.append(report)
        self.wake()

    def follow_up(self, events: Iterable[LoggedEvent]) -> None:
        self._post.followups.extend(events)
        if self._post.followups:
            self.wake()

    def take(self) -> Arrivals:
        """Everything that has arrived; the inbox is empty afterwards."""
        arrived, self._post, self._awaits_progress = self._post, Arrivals(), False
        return arrived

    def wake(self) -> None:
        self._woken.set()

    def wake_in(self, seconds: float) -> None:
        asyncio.get_running_loop().call_later(seconds, self.wake)

    async def wait(self, seconds: float | None) -> None:
        """Wait until something arrives, at most this long; None: without a limit."""
        if seconds is None or seconds > 0:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._woken.wait(), seconds)
        self._woken.clear()
