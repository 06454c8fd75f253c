"""Who is likeliest to end soon per GPU-second runs first, with what a change of hands costs counted in.

The order inside a queue, or of all jobs, of `trainmaster`. A job's rank is 1/G, the service that its
completion is expected to cost (estimators/service/), of the narrowest class that is known.
A job that waits is charged what a change of hands costs on its GPUs; the rank of one that runs counts
only in part: both keep a run where a swap would gain less than it costs. What is known is a value of
the policy around it, shown to it before each pass: this holds nothing of its own.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from trainmaster.core.lifecycle import ALLOCATED
from trainmaster.core.state import JobRecord
from trainmaster.estimators.service.bins import EDGES, NO_END, UPPER, bin_of
from trainmaster.estimators.service.chances import ChanceForecast
from trainmaster.estimators.service.predictor import Observations, ServicePredictor
from trainmaster.model.plan import Rank
from trainmaster.model.units import HOUR, NOMINAL, SECOND, ceil_div

CAP_FROM_MS = HOUR
NEVER = 1 << 62
"""Rank value of a job that has not started: behind equals that have."""
STEP = NO_END << 1
"""What one step of priority counts for: more than any 1/G."""
STEPS = 1 << 16
"""Priorities beyond count for so many: protected runs stay before everybody."""


@dataclass(slots=True)
class Known:
    """What ranks are made of at this pass."""

    predictor: ServicePredictor[ChanceForecast]
    kept_ppm: int
    """Part of its 1/G that counts for a job that runs."""
    cap_ppm: int = 0
    """1/G counts for at most this many times the service attained and an hour more; 0 = for all."""
    switch_ms: int = 0
    seen: Observations = field(default_factory=Observations)

    def forecast(self, record: JobRecord) -> ChanceForecast:
        return self.predictor.forecast(self.seen, record)

    def capped(self, inverse: int, record: JobRecord, step: int) -> int:
        """No rank is so bad that others would go on before it for ever."""
        if not self.cap_ppm:
            return inverse
        least = EDGES[step] + CAP_FROM_MS * record.demand.nominal.total_share
        return min(inverse, least * self.cap_ppm // NOMINAL)

    def kept(self, inverse: int) -> int:
        """What 1/G counts for while the job runs."""
        return inverse * self.kept_ppm // NOMINAL if inverse < NO_END else NO_END

    def level_of_run(self, record: JobRecord, step: int) -> int:
        """Its rank while it runs."""
        inverse = self.capped(self.forecast(record).inverse(step), record, step)
        return self.kept(inverse) + _behind(record)

    def left_ms(self, record: JobRecord, now: int) -> int:
        """How long the job is expected to go on, should it end when jobs like it mostly do."""
        return self.worth(record, now) // record.demand.nominal.total_share

    def worth(self, record: JobRecord, now: int) -> int:
        """1/G: the service that its completion is expected to cost."""
        return self.forecast(record).inverse(bin_of(record.attained_at(now)))


def rank_by_worth(known: Known, record: JobRecord, now: int) -> Rank:
    """By priority, 1/G, then who started first; holds until the job has come to another bin of service."""
    looked_at = now if record.since_ms is None else max(record.since_ms, now // SECOND * SECOND)
    step = bin_of(record.attained_at(looked_at))
    forecast = known.forecast(record)
    start = NEVER if record.first_start_ms is None else record.first_start_ms
    if record.phase not in ALLOCATED:
        expense = known.switch_ms * record.demand.nominal.total_share
        inverse = known.capped(forecast.inverse(step, expense), record, step)
        return Rank(inverse + _behind(record), start)
    level = known.level_of_run(record, step)
    until, edge = None, UPPER[step]
    if record.since_ms is not None and edge is not None:
        at = record.since_ms + ceil_div(edge - record.attained, record.rate)
        until = ceil_div(at, SECOND) * SECOND
    return Rank(level, start, until_ms=until)


def _behind(record: JobRecord) -> int:
    """Where its priority puts it: higher ones go first, whatever their worth."""
    return -min(max(record.job.priority, -STEPS), STEPS) * STEP
