"""Siblings: jobs submitted one after another by the same source, often one sweep of one program.

A source is a queue, a size, and a user and program where these are known. Each job knows the ten jobs
that its source submitted before it, and the ten after. (On Philly's jobs log service correlates by 0.9
between neighbours within a minute, and by 0.5 at a distance of ten.) Only live jobs keep their siblings,
so memory does not grow.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from itertools import islice
from typing import TYPE_CHECKING

from trainmaster.model.program_name import program_of
from trainmaster.model.units import DAY

if TYPE_CHECKING:
    from trainmaster.core.state import JobRecord

NEAR = 10
"""How many submissions before and after a job are its siblings."""
FORGOTTEN_MS = 7 * DAY
SubmissionSource = tuple[str, int, str, str]


class RecentSubmissions:
    """The last submissions of each source; the source with the newest submission comes last."""

    def __init__(self) -> None:
        self._last: dict[SubmissionSource, deque[JobRecord]] = {}

    def by_source(self) -> list[tuple[SubmissionSource, deque[JobRecord]]]:
        """Each source with its last submissions."""
        return list(self._last.items())

    def restore(self, source: SubmissionSource, last: Iterable[JobRecord]) -> None:
        """Set the last submissions of a source, as the newest source."""
        self._last[source] = deque(last, maxlen=NEAR)

    def add(self, record: JobRecord, now: int) -> None:
        """Make a new job and the last submissions of its source siblings of each other."""
        job = record.job
        source = (job.queue, job.demand.nominal.total_share, job.user, program_of(job.app))
        last = self._last.pop(source, None)
        if last is None:
            last = deque(maxlen=NEAR)
        record.siblings.extend(last)
        for elder in last:
            if elder.is_live:
                elder.siblings.append(record)
        last.append(record)
        self._last[source] = last
        for old in tuple(islice(self._last, 2)):
            if now - self._last[old][-1].job.submit_ms > FORGOTTEN_MS:
                del self._last[old]
