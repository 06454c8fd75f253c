"""How long a job with a deadline will take, on the safe side.

Work comes from the job's estimate (declared iterations, a fit, history), else from what the policy has
learned of such jobs' service. It is padded by `deadline_margin`, or by what the run times of the jobs
that ended last exceeded their prediction by, in all but the worst cases, if that is more: Clockwork's
rolling percentile. A job that outlives its padded work is given a tenth of what it has done more each
time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from trainmaster.core.lifecycle import Phase
from trainmaster.core.state import JobRecord
from trainmaster.core.view import View
from trainmaster.model.units import MINUTE, NOMINAL, ceil_div
from trainmaster.policies.trainmaster.deadlines.capacity_calendar import Kinds

MOST_ERRORS = 32
"""Errors that are remembered, ..."""
ERROR_PERCENTILE = 95
"""... and the percentile of them that counts."""
EXTENSION_PART = 10
EXTENSION_LEAST = MINUTE * NOMINAL

ExpectedService = Callable[[JobRecord], int | None]
"""Service (thousandths of a GPU x ms) that a job will hardly exceed in all; None where nobody knows."""


def padded_work(
    record: JobRecord,
    expected_service: ExpectedService | None,
    margin_ppm: int,
    errors_ppm: Sequence[int],
) -> int | None:
    """Work that the job needs in all, on the safe side; None where nobody knows."""
    if record.estimate is not None:
        work = record.estimate.work
    else:
        service = expected_service(record) if expected_service is not None else None
        if service is None:
            return None
        work = ceil_div(service * NOMINAL, record.demand.nominal.total_share)
    return max(1, ceil_div(work * max(NOMINAL + margin_ppm, error_percentile(errors_ppm)), NOMINAL))


def error_percentile(errors_ppm: Sequence[int]) -> int:
    """Measured over predicted run time, exceeded by few; 0 where nothing has been measured."""
    if not errors_ppm:
        return 0
    place = min(len(errors_ppm) - 1, len(errors_ppm) * ERROR_PERCENTILE // 100)
    return sorted(errors_ppm)[place]


def extended_work(done: int) -> int:
    """What a job that has done more than was expected is taken to need in all."""
    return done + max(EXTENSION_LEAST, done // EXTENSION_PART)


def with_errors(errors_ppm: tuple[int, ...], ended: Sequence[JobRecord]) -> tuple[int, ...]:
    """The same after these jobs; elastic ones ran on other numbers of GPUs than predicted for."""
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
    """Speed of the slowest GPU that it may be given."""
    types = view.topology.types
    return min((types[kind].speed_ppm for kind in kinds), default=NOMINAL)
