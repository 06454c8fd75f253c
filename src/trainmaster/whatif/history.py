"""What would the past have been under another policy? Recorded arrivals, replayed through the simulator."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from trainmaster.config.performance import perf_model_from
from trainmaster.core.state import State
from trainmaster.daemon.export import as_submitted, as_trace, ended_jobs
from trainmaster.daemon.job_history import JobHistory
from trainmaster.daemon.live_job import Hold, stored_submission
from trainmaster.daemon.recording import Present, node_changes, perf_fields, programs_save
from trainmaster.daemon.whatif_rows import WhatIfResult
from trainmaster.model import events as e
from trainmaster.model.job import Demand
from trainmaster.model.job_state import ENDED_STATES, LIVE_STATES
from trainmaster.model.policy_spec import PolicySpec
from trainmaster.model.result import Result
from trainmaster.model.topology import Topology
from trainmaster.model.trace import TracedJob
from trainmaster.model.units import DAY, NOMINAL, WHOLE
from trainmaster.sim.driver import Estimates, Scenario, Simulation
from trainmaster.sim.metrics import result_of
from trainmaster.store.rows import JobFilter, StoredJob
from trainmaster.store.store import Store
from trainmaster.text.formatting import length, plural
from trainmaster.whatif.comparison import Column, CountedJob, Fate, Stay, compared
from trainmaster.whatif.counted_devices import CountedDevices
from trainmaster.whatif.forecast import ExpectedWork
from trainmaster.whatif.live_state import LiveState
from trainmaster.whatif.question import Question, QuestionError
from trainmaster.whatif.world import cluster_of, made, name_of, queues_of, spec_of

LOOK_BACK_MS = 7 * DAY
"""Jobs that were submitted so long before the time in question are not looked for."""
MOST_JOBS = 100_000
OnProgress = Callable[[float, str], None]
"""How much is done, from 0 to 1, and what is being done."""


@dataclass(frozen=True, slots=True)
class Past:
    """The jobs of the time in question, as they were."""

    since_ms: int
    until_ms: int
    ended: tuple[tuple[StoredJob, TracedJob], ...]
    """In the order of submission."""
    live: tuple[tuple[StoredJob, TracedJob], ...]
    """Jobs that have not ended, with the work that is expected of them."""
    held: int = 0
    """Live jobs that their owners hold: left out."""

    @property
    def counted(self) -> list[StoredJob]:
        return [row for row, _ in self.ended if row.submit_ms >= self.since_ms]


def answered(
    store: Store, now: LiveState, question: Question, on_progress: OnProgress
) -> WhatIfResult:
    """The comparison; QuestionError where there is nothing to compare."""
    on_progress(0.0, "reading the history")
    past = past_of(store, now, question)
    counted = past.counted
    if not counted:
        raise QuestionError(
            f"No job that was submitted in the last {length(question.since_ms)} has ended: there is nothing"
            " to compare yet. A longer time may have some."
        )
    others = tuple(spec_of(each) for each in question.policies)
    if not others and question.changes_the_world:
        others = (now.policy,)
    for spec in others:
        made(spec)
    start = _start(past)
    changes = list(node_changes(store, now.present, start))
    saves = programs_save(store)
    devices = CountedDevices.of(now.present.topology, now.present.forgotten)
    columns = [_real(past, counted, now, store)]
    runs = [(now.policy, Question(), "in-force"), *((spec, question, "other") for spec in others)]
    for number, (spec, asked, kind) in enumerate(runs):
        name = name_of(spec, asked)

        def so_far(part: float, name: str = name, number: int = number) -> None:
            on_progress((number + part) / len(runs), f"simulating {name}")

        so_far(0.0)
        scenario = _scenario(past, now.present, asked, changes, start, saves=saves)
        columns.append(_simulated(scenario, spec, name, kind, counted, start, so_far))
    return compared(
        "history",
        [counted_job(row, devices) for row in counted],
        columns,
        (max(past.since_ms, start), past.until_ms),
        _notes(past, now, question),
    )


def past_of(store: Store, now: LiveState, question: Question) -> Past:
    since = now.now_ms - question.since_ms
    rows = list(_ended_since(store, since))
    if len(rows) > MOST_JOBS:
        raise QuestionError(
            f"{len(rows):,} jobs are more than {MOST_JOBS:,}: ask for a shorter time with --since."
        )
    ended = ended_jobs(store, now.present.topology, rows, since - LOOK_BACK_MS)
    live, held = _live(store, now)
    return Past(since, now.now_ms, tuple(ended), tuple(live), held)


def _ended_since(store: Store, since: int) -> Iterator[StoredJob]:
    """Newest first."""
    page = JobFilter(states=frozenset(ENDED_STATES), since_ms=since - LOOK_BACK_MS, limit=1000)
    while rows := store.jobs(page):
        yield from (row for row in rows if row.finish_ms is not None and row.finish_ms >= since)
        page = replace(page, before=rows[-1].id)


def _live(store: Store, now: LiveState) -> tuple[list[tuple[StoredJob, TracedJob]], int]:
    """Live jobs with the work that is expected of them, and how many their owners hold."""
    expected, jobs = ExpectedWork(now.controller), now.controller.state.jobs
    found: list[tuple[StoredJob, TracedJob]] = []
    held = 0
    for row in reversed(list(store.all_jobs(frozenset(LIVE_STATES)))):
        record, history = jobs.get(row.id), JobHistory.from_json(row.record_json)
        if record is None:
            continue
        if Hold.OWNER.value in history.holds:
            held += 1
            continue
        stored = stored_submission(row)
        service = max(1, expected(record) // NOMINAL)
        found.append(
            (
                row,
                TracedJob(
                    as_submitted(row),
                    service,
                    stays_in_memory=stored.recipe.may_stay_in_memory,
                    depends_on=stored.depends_on,
                    array=row.array or "",
                    array_limit=None if stored.array is None else stored.array.limit,
                ),
            )
        )
    return found, held


def arrival(row: StoredJob, since: int) -> int:
    """When it comes to the simulated cluster: what ran already when the time began comes when it started."""
    started = row.start_ms
    return started if started is not None and started < since else row.submit_ms


def _start(past: Past) -> int:
    return min(arrival(row, past.since_ms) for row, _ in (*past.ended, *past.live))


def _scenario(
    past: Past,
    present: Present,
    question: Question,
    changes: Sequence[e.NodeChange],
    start: int,
    *,
    saves: bool,
) -> Scenario:
    cluster = cluster_of(present, question, changes)
    queues, limits = queues_of(present, question)
    perf = perf_model_from(
        perf_fields(present.switch_times, can_freeze=present.can_freeze, saves=saves),
        "measured here",
    )
    jobs = [
        replace(
            job, job=replace(job.job, submit_ms=arrival(row, past.since_ms), demand=_anywhere(job))
        )
        for row, job in (*past.ended, *past.live)
    ]
    jobs.sort(key=lambda each: (each.job.submit_ms, _number(each.job.id)))
    return Scenario(
        trace=as_trace(jobs, start),
        topology=cluster.topology,
        cluster=str(cluster.topology),
        perf=perf,
        estimates=Estimates(known=False),
        queues=queues,
        user_limits=limits,
        node_changes=cluster.changes,
        keep_stints=True,
    )


def _anywhere(job: TracedJob) -> Demand:
    """What it asks for, without devices and nodes by their numbers, which may be others' here."""
    return replace(job.job.demand, avoid=(), barred=(), warm=())


def _number(job: str) -> tuple[int, ...]:
    return tuple(int(part) for part in job.split("_") if part.isdecimal())


def _simulated(
    scenario: Scenario,
    spec: PolicySpec,
    name: str,
    kind: str,
    counted: Sequence[StoredJob],
    start: int,
    on_progress: Callable[[float], None],
) -> Column:
    policy = made(spec)
    simulation = Simulation(scenario, policy)
    simulation.run(lambda ended, all_, now: on_progress(ended / max(1, all_)))
    result = result_of(simulation)
    jobs = {job.job_id: job for job in result.jobs}
    return Column(
        name=name,
        kind=kind,
        policy=spec.name,
        options=dict(spec.options),
        gpus=CountedDevices.of(scenario.topology).gpus,
        fates={
            row.id: Fate(
                _later(jobs[row.id].start_ms, start),
                _later(jobs[row.id].finish_ms, start),
                jobs[row.id].held,
            )
            for row in counted
        },
        stays=list(_stays(result, scenario.topology, start)),
        preemptions=sum(jobs[row.id].preemptions for row in counted),
        migrations=sum(jobs[row.id].migrations for row in counted),
        queues=scenario.queues,
    )


def _later(ms: int | None, start: int) -> int | None:
    return None if ms is None else ms + start


def _stays(result: Result, topology: Topology, start: int) -> Iterator[Stay]:
    per_gpu = {job.job_id: min(WHOLE, job.gpus_milli) for job in result.jobs}
    counted, kinds = CountedDevices.of(topology), topology.type_of_gpu
    for stint in result.stints:
        if not counted.counts(kinds[stint.gpus[0]].name):
            continue
        milli = len(stint.gpus) * per_gpu[stint.job_id]
        yield Stay(stint.start_ms + start, stint.end_ms + start, milli)


def _real(past: Past, counted: Sequence[StoredJob], now: LiveState, store: Store) -> Column:
    """What happened, as the store has it."""
    histories = {row.id: JobHistory.from_json(row.record_json) for row in counted}
    present = now.present
    devices = CountedDevices.of(present.topology, present.forgotten)
    return Column(
        name="What happened",
        kind="real",
        policy=now.policy.name,
        options=dict(now.policy.options),
        gpus=devices.gpus,
        fates={
            row.id: Fate(row.start_ms, row.finish_ms, histories[row.id].gpu_ms) for row in counted
        },
        stays=list(_real_stays(store, past, now.controller.state, devices)),
        preemptions=sum(each.preemptions for each in histories.values()),
        migrations=sum(each.migrations for each in histories.values()),
        queues={queue.name: queue for queue in present.queues},
    )


def _real_stays(store: Store, past: Past, state: State, devices: CountedDevices) -> Iterator[Stay]:
    charged: Counter[str] = Counter()
    for row in store.charges(past.since_ms, past.until_ms):
        charged[row.job] = max(charged[row.job], row.to_ms)
        if row.to_ms > row.from_ms and row.gpu_ms > 0 and devices.counts(row.gpu_type):
            yield Stay(row.from_ms, row.to_ms, row.gpu_ms // (row.to_ms - row.from_ms))
    for record in state.jobs.values():
        placement, began = record.placement, record.since_ms
        if placement is None or began is None:
            continue
        if devices.counts_placement(placement, state.topology):
            yield Stay(max(began, charged[record.id]), past.until_ms, placement.total_share)


def counted_job(row: StoredJob, devices: CountedDevices) -> CountedJob:
    is_on_gpus = devices.counts(stored_submission(row).job.demand.gpu_type)
    return CountedJob(row.id, row.name, row.user, row.queue, row.gpus, row.submit_ms, is_on_gpus)


def _notes(past: Past, now: LiveState, question: Question) -> Iterator[str]:
    before = len(past.ended) - len(past.counted)
    yield (
        "Simulated times start from what jobs really ran, and from what a start and a suspension took on this"
        " manager."
    )
    if before:
        yield (
            f"{plural(before, 'job')} submitted before that time and still there then"
            f" {'takes' if before == 1 else 'take'} part and {'is' if before == 1 else 'are'} not counted."
        )
    if past.live:
        many = len(past.live)
        yield (
            f"{plural(many, 'job')} that {'has' if many == 1 else 'have'} not ended"
            f" {'takes' if many == 1 else 'take'} part with the time that is expected of"
            f" {'it' if many == 1 else 'them'}, and {'is' if many == 1 else 'are'} not counted."
        )
    if past.held:
        yield f"{plural(past.held, 'job')} held by hand {'is' if past.held == 1 else 'are'} left out."
    if now.policy_since_ms is not None and now.policy_since_ms > max(past.since_ms, _start(past)):
        yield (
            f"The policy in force, {now.policy.name}, was chosen {length(now.now_ms - now.policy_since_ms)}"
            " ago: what happened before that was under another one."
        )
    if question.set_queues or question.queues is not None:
        yield "Policies that do not look at queues obey maxima alone, not guarantees and weights."
