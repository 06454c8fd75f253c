"""When will a job start? The live state continues in virtual time under its own policy until it does."""

from __future__ import annotations

from statistics import median
from time import thread_time

from trainmaster.core.controller import Controller, Decision
from trainmaster.core.lifecycle import Phase
from trainmaster.core.state import JobRecord, State
from trainmaster.daemon.device_names import device_name
from trainmaster.daemon.recovery import from_snapshot
from trainmaster.daemon.service_api import RELEASED_FIRST, Forecast
from trainmaster.model import events as e
from trainmaster.model.job import Source
from trainmaster.model.units import DAY, MINUTE, NOMINAL
from trainmaster.store.rows import SnapshotRow
from trainmaster.text.formatting import length, listing
from trainmaster.text.run_times import BASES
from trainmaster.whatif.forecast_engine import ForecastEngine

MOST_STEPS = 20_000
MOST_S = 1.0
"""Processor time of one forecast, at most: it is taken from everything else that the manager does."""
FARTHEST_MS = 60 * DAY
LEAST_MS = MINUTE
"""Least work that is assumed of a job without progress reports."""


def forecast_start(snapshot: SnapshotRow, what: str | e.JobSubmitted, now_ms: int) -> Forecast:
    """When this job starts if every job ends when expected and no other jobs are submitted."""
    controller = from_snapshot(snapshot).controller
    now, facts = max(controller.now, now_ms), list[e.Event]()
    name = what if isinstance(what, str) else what.job.id
    if isinstance(what, e.JobSubmitted):
        facts.append(what)
    record = controller.state.jobs.get(name)
    if record is not None and record.phase is Phase.HELD and record.is_held:
        return Forecast(None, RELEASED_FIRST)
    if record is None and not facts:
        return Forecast(None, "it has ended.")
    expected = ExpectedWork(controller)
    engine = ForecastEngine(controller.state, expected)
    engine.adopt(now)
    decision = controller.step(now, facts)
    notice = next((each for each in decision.notices if each.job == name), None)
    try:
        found = _simulated_start(controller, engine, facts, decision, name, now)
    except TimeoutError:
        return Forecast(None, "the queue is too long to be simulated in time.", notice)
    if found is None:
        return Forecast(None, _not_soon(controller.state), notice)
    return Forecast(found, expected.basis(), notice)


def _not_soon(state: State) -> str:
    """That it does not start; what is drained, away or set aside stays so in a forecast, and may be why."""
    drained = [state.topology.nodes[node].name for node in sorted(state.draining)]
    away = [state.topology.nodes[node].name for node in sorted(state.away - state.forgotten)]
    aside = [device_name(state.topology, gpu) for gpu in sorted(state.gpus_aside)]
    why = [
        f"{listing(names)} {'is' if len(names) == 1 else 'are'} {what}"
        for names, what in ((drained, "drained"), (away, "away"), (aside, "set aside"))
        if names
    ]
    return (
        f"it would not start while {listing(why)}."
        if why
        else "it would not start within sixty days."
    )


def _simulated_start(
    controller: Controller,
    engine: ForecastEngine,
    facts: list[e.Event],
    decision: Decision,
    name: str,
    now: int,
) -> int | None:
    """Step by step from this decision until the job runs; None if that is over `FARTHEST_MS` away."""
    start, jobs = now, controller.state.jobs
    until = thread_time() + MOST_S
    for _ in range(MOST_STEPS):
        if thread_time() > until:
            raise TimeoutError
        for fact in facts:
            if isinstance(fact, e.RunStarted | e.RunResumed | e.RunResized):
                record = jobs.get(fact.run.job)
                if record is not None and record.run == fact.run:
                    engine.ends(record, now)
        record = jobs.get(name)
        if record is None or (record.phase is Phase.RUNNING and not record.is_prerun):
            return now
        for order in decision.orders:
            engine.execute(order, now)
        times = [time for time in (engine.next_time(), decision.wake_at) if time is not None]
        if not times or min(times) - start > FARTHEST_MS:
            return None
        now = max(now, min(times))
        facts = engine.facts_at(now)
        decision = controller.step(now, facts)
    raise TimeoutError


class ExpectedWork:
    """How much work each job is assumed to need: its estimate, or twice what it has done; no more than
    its time limit allows."""

    def __init__(self, controller: Controller) -> None:
        known = [
            record.estimate.work
            for record in controller.state.jobs.values()
            if record.estimate is not None
        ]
        now = controller.now
        ran = [work for r in controller.state.jobs.values() if (work := r.work_at(now)) > 0]
        self._typical = max(int(median(known or ran or [0])), LEAST_MS * NOMINAL)
        """Least work of a job that has not reported any: the median of the others, or a minute."""
        self._fixed: dict[str, int] = {}
        self._now = now
        self._sources: set[Source] = set()
        self._is_exact = True

    def __call__(self, record: JobRecord) -> int:
        work, limit_ms = self._work(record), record.job.max_runtime_ms
        return work if limit_ms is None else min(work, limit_ms * NOMINAL)

    def _work(self, record: JobRecord) -> int:
        if record.id in self._fixed:
            return self._fixed[record.id]
        known, done = record.estimate, record.work_at(self._now)
        if known is not None and (known.source is Source.STEPS or known.work > done):
            self._sources.add(known.source)
            self._fixed[record.id] = known.work
        else:  # nothing is known, or it runs for longer than it was expected to
            self._is_exact = False
            self._fixed[record.id] = max(2 * done, self._typical)
        return self._fixed[record.id]

    def basis(self) -> str:
        """What was assumed, in words."""
        judged = " or ".join(BASES[each] for each in Source if each in self._sources)
        by = f", judging by {judged}" if judged else ""
        if self._is_exact:
            return (
                f"assumes that each job ends when expected{by}, and that nobody submits more jobs."
            )
        least = length(self._typical // NOMINAL)
        others = f" that each job ends when expected{by}," if judged else ""
        return (
            f"assumes{others} that jobs without progress reports or earlier runs run as long again as they"
            f" have already run, and {least} at least, within their time limits, and that nobody submits"
            " more jobs."
        )
