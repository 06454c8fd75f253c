"""Priority: the only place that says which job goes before which.

A rank is a level and, among jobs of one level, a value; the lowest goes first. Waiting and running jobs are
ranked alike, and a run is preempted for a waiting job of a better rank. The levels, best first:

| level | which jobs | among them first |
|---|---|---|
| `DUE` | accepted deadline that leaves no slack, and is expected to be met | the earlier deadline |
| `LATE` | the same, but expected to be missed | the earlier deadline |
| `GUARANTEED_RUN` | guaranteed a run by the starvation guard (starvation_guard.py) | the earlier submission |
| `YOUNG` | a run younger than `min_run_s` | the earlier submission |
| `STARVING` | has waited `starve_after_s` | the longer wait |
| cost | all others, by `priority`, then by Gittins cost | see below |

The Gittins cost 1/G is the expected service (GPUs x time) per completion of such a job
(Tiresias, NSDI'19; `gittins_cost` in estimators/service/gittins_by_bin.py). It is limited to `cap` times the
job's attained service, so that no job is overtaken indefinitely. A waiting job's cost includes the cost of a
preemption (`charge_switches`), and a run's cost can be reduced (`hysteresis`), so that a run stays if a swap
gains less than it costs. Ties: the earlier first start; among runs that are not saved when suspended, the one
with the older checkpoint, since it would lose more.

A rank is valid until `until_ms`, when the job reaches another level or service bin, or accepts GPUs farther
apart (delay_scheduling.py).
"""

from __future__ import annotations

from trainmaster.core.lifecycle import ALLOCATED
from trainmaster.core.rank_index import RankIndex
from trainmaster.core.state import JobRecord
from trainmaster.estimators.service.bins import EDGES, NO_END, UPPER, bin_of
from trainmaster.mechanisms.preemption_guards import YOUNG
from trainmaster.model.plan import Rank
from trainmaster.model.units import HOUR, NOMINAL, SECOND, ceil_div
from trainmaster.policies.trainmaster.scheduling_pass import Pass

DUE = -(1 << 82)
LATE = DUE + 1
GUARANTEED_RUN = YOUNG - (1 << 40)
STEP = NO_END << 1
"""One unit of `priority`: more than any cost ..."""
STEPS = 1 << 16
"""... and the most that count, so that costs stay behind the levels above."""
CAP_FROM_MS = HOUR
"""The limit of a cost counts this much time on the job's GPUs on top of its attained service."""
NOT_STARTED = 1 << 62
"""Value of a job that has not started: ranked behind jobs of equal cost that have."""


def rank_order(p: Pass) -> RankIndex:
    """All jobs in rank order."""
    return p.view.ranked(lambda each: rank(p, each), p.now, group=p.group, with_running=True)


def rank(p: Pass, record: JobRecord) -> Rank:
    """The best of its levels, valid until that may change."""
    found, until = None, None
    if p.memo.deadlines.accepted:
        found, until = _by_deadline(p, record)
    if found is None and p.memo.owed.until:
        found = _by_guaranteed_run(p, record)
    if found is None:
        found = _by_cost(p, record)
        if p.guards.hold(record.switch_ms):
            found = p.guards.rank(record, found, p.now)
    if p.locality is not None:
        until = _sooner(until, p.locality.accepts_more_at(record))
    return found if until is None else found._replace(until_ms=_sooner(found.until_ms, until))


def _by_deadline(p: Pass, record: JobRecord) -> tuple[Rank | None, int | None]:
    """The rank of a job that must hold GPUs for its deadline now; else when it will have to."""
    commitment = p.memo.deadlines.accepted.get(record.id)
    if commitment is None:
        return None, None
    is_due, until = commitment.due(record, p.now)
    if not is_due:
        return None, until
    level = LATE if commitment.is_late else DUE
    return Rank(level, commitment.deadline_ms, until_ms=until), None


def _by_guaranteed_run(p: Pass, record: JobRecord) -> Rank | None:
    most, until = p.memo.owed.until.get(record.id), None
    if most is None:
        return None
    if record.since_ms is not None:
        until = record.since_ms + ceil_div(max(0, most - record.attained), record.rate)
        if until <= p.now:
            return None
    return Rank(GUARANTEED_RUN, record.seq, until_ms=until)


def _by_cost(p: Pass, record: JobRecord) -> Rank:
    """By priority, cost, then first start; valid until the job reaches the next service bin."""
    now, since = p.now, record.since_ms
    seen_at = now if since is None else max(since, now // SECOND * SECOND)
    step = bin_of(record.attained_at(seen_at))
    start = NOT_STARTED if record.first_start_ms is None else record.first_start_ms
    before = min(max(record.job.priority, -STEPS), STEPS) * STEP
    if record.phase not in ALLOCATED:
        expense = p.memo.handover_ms * record.demand.nominal.total_share
        return Rank(_capped(p, record, step, expense) - before, start)
    cost = _capped(p, record, step, 0)
    cost = cost * p.settings.hysteresis_ppm // NOMINAL if cost < NO_END else NO_END
    until, edge, level = None, UPPER[step], cost - before
    if since is not None and edge is not None:
        at = since + ceil_div(edge - record.attained, record.rate)
        until = ceil_div(at, SECOND) * SECOND
    if level >= 0 and not p.view.saves_on_demand:
        start = record.saved_ms
    return Rank(level, start, until_ms=until)


def _capped(p: Pass, record: JobRecord, step: int, expense: int) -> int:
    cost = p.forecast(record).gittins_cost(step, expense)
    if not p.settings.cap_ppm:
        return cost
    least = EDGES[step] + CAP_FROM_MS * record.demand.nominal.total_share
    return min(cost, least * p.settings.cap_ppm // NOMINAL)


def cost(p: Pass, record: JobRecord) -> int:
    """1/G: expected service per completion, in thousandths of a GPU x ms."""
    return p.forecast(record).gittins_cost(bin_of(record.attained_at(p.now)))


def left_ms(p: Pass, record: JobRecord) -> int:
    """Expected remaining time of the job on its nominal GPUs, from its Gittins cost."""
    return cost(p, record) // record.demand.nominal.total_share


def due_now(p: Pass) -> list[JobRecord]:
    """Jobs that are guaranteed a run or must hold GPUs for a deadline now, best rank first."""
    found = list[tuple[Rank, int, JobRecord]]()
    for job in {**p.memo.owed.until, **p.memo.deadlines.accepted}:
        record = p.view.jobs.get(job)
        if record is not None:
            ranked = rank(p, record)
            if ranked.level <= GUARANTEED_RUN:
                found.append((ranked._replace(until_ms=None), record.seq, record))
    return [record for _, _, record in sorted(found)]


def _sooner(one: int | None, other: int | None) -> int | None:
    if one is None or other is None:
        return other if one is None else one
    return min(one, other)
