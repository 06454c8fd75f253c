"""What failures have cost: recorded with each failed run, summed up from the store when asked for."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from trainmaster.core.state import JobRecord
from trainmaster.daemon.job_events import HAPPENED
from trainmaster.daemon.live_job import LiveJob, named_devices
from trainmaster.daemon.report_events import LoggedEvent
from trainmaster.failures.failure_report import failure_report
from trainmaster.model import events as e
from trainmaster.model.failure import UNKNOWN_REASON, Blame
from trainmaster.model.failure_report import FailedRun, FailureReport, JobEnd
from trainmaster.model.job_state import ENDED_STATES
from trainmaster.model.program_name import program_of
from trainmaster.model.topology import Topology
from trainmaster.model.units import SECOND
from trainmaster.store.rows import FailedRunRow, JobFilter
from trainmaster.store.store import Store

COST = "cost"
"""Where the story's entry of a failed run says what it cost."""
FAILED = (HAPPENED[e.RunFailed], HAPPENED[e.RunLost])
PAGE = 1000


def with_cost(
    logged: LoggedEvent, live: LiveJob, record: JobRecord, topology: Topology, now: int
) -> LoggedEvent:
    """Add to the failure or loss of a run how long it ran, on which devices and on which input."""
    if not isinstance(logged.event, e.RunFailed | e.RunLost) or record.placement is None:
        return logged
    failure = logged.event.failure
    cost = {
        "run_s": _ran_ms(live, record, now) / SECOND,
        "gpus": record.placement.total_share,
        "on": named_devices(record.placement, topology),
        "reason": UNKNOWN_REASON if failure is None else failure.reason,
        "blame": (Blame.UNKNOWN if failure is None else failure.blame).value,
        "path": "" if failure is None else failure.path,
    }
    return replace(logged, detail={**logged.detail, COST: cost})


def _ran_ms(live: LiveJob, record: JobRecord, now: int) -> int:
    """How long its run lasted that has ended just now; the time of a pre-run is not in its run time."""
    if not record.is_prerun:
        return max(0, live.history.run_ms - live.history.before_ms)
    began = now if record.run_since_ms is None else record.run_since_ms
    return max(0, (now if live.ended_ms is None else live.ended_ms) - began)


def failed_run(job: str, user: str, name: str, detail: dict[str, Any]) -> FailedRun | None:
    """A failed run by its entry; None: an earlier version has not recorded what it cost."""
    cost = detail.get(COST)
    if cost is None:
        return None
    return FailedRun(
        job=job,
        reason=cost["reason"],
        run_ms=round(cost["run_s"] * SECOND),
        gpus=cost["gpus"],
        blame=cost["blame"],
        user=user,
        program=program_of(name),
        devices=tuple(cost["on"]),
        path=cost["path"],
    )


def report_of(store: Store, wanted: JobFilter) -> FailureReport:
    """Failed runs of the jobs of a user and a queue that were submitted since a time. It blocks."""
    rows = store.failed_runs(FAILED, wanted.since_ms or 0, wanted.user, wanted.queue)
    return failure_report(filter(None, map(_of_row, rows)), _ends(store, wanted))


def _of_row(row: FailedRunRow) -> FailedRun | None:
    return failed_run(row.job, row.user, row.name, json.loads(row.detail_json))


def _ends(store: Store, wanted: JobFilter) -> Iterator[JobEnd]:
    states = frozenset(state.value for state in ENDED_STATES)
    page = replace(wanted, states=states, limit=PAGE, is_brief=True)
    while rows := store.jobs(page):
        for row in rows:
            yield JobEnd(row.state, json.loads(row.record_json).get("gpu_ms", 0))
        page = replace(page, before=rows[-1].id)
