"""Upper bounds on the run time of jobs with deadlines.

Work comes from the job's estimate (declared iterations, a fit, history), else from the learned service of
similar jobs. It is padded by `deadline_margin` or, if larger, by a rolling percentile of the prediction
errors of recently ended jobs (as in Clockwork, OSDI'20), up to the job's time limit. A job that exceeds its
padded work is extended by a tenth of the work it has done, repeatedly.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from trainmaster.core.lifecycle import Phase
from trainmaster.core.state import JobRecord
from trainmaster.core.view import View
from trainmaster.model.units import MINUTE, NOMINAL, ceil_div
from trainmaster.policies.trainmaster.deadlines.capacity_calendar import Kinds

MOST_ERRORS = 32
"""Number of recent errors kept, ..."""
ERROR_PERCENTILE = 95
"""... and the percentile of them that is used."""
EXTENSION_PART = 10
EXTENSION_LEAST = MINUTE * NOMINAL

ExpectedService = Callable[[JobRecord], int | None]
"""Upper bound of a job's total service (thousandths of a GPU x ms); None if unknown."""


def padded_work(
    record: JobRecord,
    expected_service: ExpectedService | None,
    margin_ppm: int,
    errors_ppm: Sequence[int],
) -> int | None:
    """Total work of the job with a safety margin, at most what it may do; None if neither is known."""
    limit_ms, work = record.job.max_runtime_ms, _expected_work(record, expected_service)
    most = None if limit_ms is None else max(1, limit_ms * NOMINAL)
    if work is None:
        return most
    part = max(NOMINAL + margin_ppm, error_percentile(errors_ppm))
    padded = max(1, ceil_div(work * part, NOMINAL))
    return padded if most is None else min(padded, most)


def _expected_work(record: JobRecord, expected_service: ExpectedService | None) -> int | None:
    if record.estimate is not None:
        return record.estimate.work
    service = expected_service(record) if expected_service is not None else None
    if service is None:
        return None
    return ceil_div(service * NOMINAL, record.demand.nominal.total_share)


def error_percentile(errors_ppm: Sequence[int]) -> int:
    """The percentile of measured over predicted run times; 0 if nothing has been measured."""
    if not errors_ppm:
        return 0
    place = min(len(errors_ppm) - 1, len(errors_ppm) * ERROR_PERCENTILE // 100)
    return sorted(errors_ppm)[place]


def extended_work(done: int) -> int:
    """Total work now assumed for a job that has exceeded its expected work."""
    return done + max(EXTENSION_LEAST, done // EXTENSION_PART)


def with_errors(errors_ppm: tuple[int, ...], ended: Sequence[JobRecord]) -> tuple[int, ...]:
    """The errors with those of jobs that just ended; elastic jobs are left out, as their size varied."""
    found = [
        record.attained * NOMINAL * NOMINAL // (demand.nominal.total_share * record.estimate.work)
        for record in ended
        for demand in (record.demand,)
        if record.phase is Phase.SUCCEEDED
        and record.estimate is not None
        and record.estimate.work
        and not demand.is_elastic
    ]
    return (*errors_ppm, *found)[-MOST_ERRORS:] if found else errors_ppm


def type_speed(view: View, kinds: Kinds) -> int:
    """Speed of the slowest GPU type that the job may get."""
    types = view.topology.types
    return min((types[kind].speed_ppm for kind in kinds), default=NOMINAL)
