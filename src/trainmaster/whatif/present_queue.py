"""How does the present queue go on? The live state continues in virtual time, under one policy or another."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from trainmaster.core.controller import Controller
from trainmaster.core.lifecycle import ENDED, Phase
from trainmaster.daemon.job_history import JobHistory
from trainmaster.daemon.live_job import Hold, stored_submission
from trainmaster.daemon.whatif_rows import WhatIfResult
from trainmaster.model import events as e
from trainmaster.model.job_state import LIVE_STATES
from trainmaster.model.placement import Placement
from trainmaster.model.policy_spec import PolicySpec
from trainmaster.model.queue import Queue
from trainmaster.model.trace import Outcome
from trainmaster.model.units import DAY
from trainmaster.sim.dependencies import Dependencies
from trainmaster.store.rows import StoredJob
from trainmaster.store.store import Store
from trainmaster.text.formatting import plural
from trainmaster.whatif.comparison import Column, Fate, Stay, compared
from trainmaster.whatif.counted_devices import CountedDevices
from trainmaster.whatif.forecast import ExpectedWork
from trainmaster.whatif.forecast_engine import ForecastEngine
from trainmaster.whatif.history import counted_job
from trainmaster.whatif.live_state import LiveState
from trainmaster.whatif.question import Question, QuestionError
from trainmaster.whatif.world import made, name_of, nodes_added, queues_of, spec_of

FARTHEST_MS = 365 * DAY
MOST_STEPS = 2_000_000
PROGRESS_EVERY = 200
OnProgress = Callable[[float, str], None]
STANDING_HOLDS = frozenset({Hold.OWNER.value, Hold.INPUT.value, Hold.MEMORY.value})
"""Holds that nothing in a forecast ends."""


def answered(
    store: Store, now: LiveState, question: Question, on_progress: OnProgress
) -> WhatIfResult:
    """The comparison; QuestionError where there is nothing to compare."""
    if question.cluster is not None:
        raise QuestionError(
            "The present queue runs on the cluster that is there: ask for more nodes, or ask about the past."
        )
    on_progress(0.0, "reading the queue")
    rows = _rows(store, now)
    standing = {row.id for row in rows if STANDING_HOLDS.intersection(_holds(row))}
    counted = [row for row in rows if row.id not in standing]
    if not counted:
        raise QuestionError("No job runs or waits: there is nothing to compare.")
    others = tuple(spec_of(each) for each in question.policies)
    if not others and question.changes_the_world:
        others = (now.policy,)
    for spec in others:
        made(spec)
    runs = [(now.policy, Question(), "in-force"), *((spec, question, "other") for spec in others)]
    continued = []
    for number, (spec, asked, kind) in enumerate(runs):
        name = name_of(spec, asked)

        def so_far(part: float, name: str = name, number: int = number) -> None:
            on_progress((number + part) / len(runs), f"continuing the queue under {name}")

        so_far(0.0)
        going = Continuation(now, rows, standing)
        going.change(spec if kind == "other" else None, _changes(now, asked))
        going.run(so_far)
        continued.append((going, spec, name, kind, asked))
    end = max([now.now_ms + 1, *(at for going, *_ in continued for at in going.finishes.values())])
    columns = [
        going.column(counted, spec, name, kind, queues_of(now.present, asked)[0], end)
        for going, spec, name, kind, asked in continued
    ]
    devices = CountedDevices.of(now.present.topology, now.present.forgotten)
    jobs = [counted_job(row, devices) for row in counted]
    notes = _notes(continued[0][0], standing, question)
    return compared("queue", jobs, columns, (now.now_ms, end), notes)


def _rows(store: Store, now: LiveState) -> list[StoredJob]:
    """Jobs that were live when it was asked, in the order of submission; some may have ended since."""
    jobs = now.controller.state.jobs
    found = {row.id: row for row in store.all_jobs(frozenset(LIVE_STATES))}
    for job in jobs:
        row = found.get(job) or store.job(job)
        if row is not None:
            found[job] = row
    return [found[job] for job in jobs if job in found]


def _holds(row: StoredJob) -> tuple[str, ...]:
    return JobHistory.from_json(row.record_json).holds


def _changes(now: LiveState, asked: Question) -> list[e.Event]:
    facts: list[e.Event] = []
    if asked.more_nodes:
        facts.append(nodes_added(now.present, asked))
    if asked.queues is not None or asked.set_queues:
        queues, limits = queues_of(now.present, asked)
        gone = [queue.name for queue in now.present.queues if queue.name not in queues]
        facts += [e.QueueRemoved(name) for name in gone]
        facts += [e.QueueDefined(queue) for queue in queues.values()]
        facts += [e.UserLimited(each) for each in limits]
    return facts


@dataclass(slots=True)
class Continuation:
    """The live state in virtual time, from now until every job has ended."""

    now: LiveState
    rows: Sequence[StoredJob]
    standing: set[str]
    controller: Controller = field(init=False)
    finishes: dict[str, int] = field(default_factory=dict)
    starts: dict[str, int] = field(default_factory=dict)
    _engine: ForecastEngine = field(init=False)
    _expected: ExpectedWork = field(init=False)
    _dependencies: Dependencies = field(default_factory=Dependencies)
    _facts: list[e.Event] = field(default_factory=list)
    _holding: dict[str, tuple[int, int]] = field(default_factory=dict)
    """By job: since when it has held its devices, and how many thousandths."""
    _devices: CountedDevices = field(init=False)
    _on_slots: set[str] = field(default_factory=set)
    """Jobs whose devices are not counted."""
    _stays: list[Stay] = field(default_factory=list)
    _held: dict[str, int] = field(default_factory=dict)
    _preemptions: int = 0

    def __post_init__(self) -> None:
        self.controller = self.now.again()
        state = self.controller.state
        self._expected = ExpectedWork(self.controller)
        self._engine = ForecastEngine(state, self._expected)
        self._engine.adopt(self.now.now_ms)
        self._devices = CountedDevices.of(state.topology, state.forgotten)
        for record in state.jobs.values():
            if record.first_start_ms is not None:
                self.starts[record.id] = record.first_start_ms
            if record.placement is not None:
                self._note_devices(record.id, record.placement)
                self._holding[record.id] = (self.now.now_ms, record.placement.total_share)
        self._register()

    def _register(self) -> None:
        """What the manager holds for other jobs, and for places of arrays."""
        jobs = self.controller.state.jobs
        for row in self.rows:
            stored, array = stored_submission(row), stored_submission(row).array
            is_held = jobs[row.id].is_held
            wanted = [each for each in stored.depends_on if each.job in jobs] if is_held else []
            self._dependencies.submitted(
                row.id,
                wanted,
                row.array or "",
                None if array is None else array.limit,
                has_place=not is_held or (bool(wanted) and Hold.ARRAY.value not in _holds(row)),
            )

    def change(self, policy: PolicySpec | None, facts: Sequence[e.Event]) -> None:
        """What is different from now on."""
        self._facts += facts
        if policy is not None:
            self._facts.append(e.PolicyChanged.to(policy))

    def run(self, on_progress: Callable[[float], None]) -> None:
        controller, engine, now = self.controller, self._engine, self.now.now_ms
        total = max(1, len(controller.state.jobs) - len(self.standing))
        for step in range(MOST_STEPS):
            facts, self._facts = self._facts, []
            decision = controller.step(now, facts)
            self._note(facts, now)
            if controller.policy_error is not None:
                raise QuestionError(
                    f"The policy {controller.policy.name} fails: {controller.policy_error}."
                )
            for order in decision.orders:
                engine.execute(order, now)
                self._note_use(order.run.job, now)
            if step % PROGRESS_EVERY == 0:
                on_progress(min(1.0, len(self.finishes) / total))
            if self._facts:
                continue
            times = [at for at in (engine.next_time(), decision.wake_at) if at is not None]
            if not times or min(times) - self.now.now_ms > FARTHEST_MS or self._is_done():
                return
            now = max(now, min(times))
            self._facts = engine.facts_at(now)
        raise QuestionError("The queue is too long to be continued to its end.")

    def _is_done(self) -> bool:
        return all(job in self.standing for job in self.controller.state.jobs)

    def _note(self, facts: Sequence[e.Event], now: int) -> None:
        jobs = self.controller.state.jobs
        for fact in facts:
            if isinstance(fact, e.RunStarted | e.RunResumed | e.RunResized):
                record = jobs.get(fact.run.job)
                if record is not None and record.run == fact.run:
                    self._engine.ends(record, now)
                    if record.phase is Phase.RUNNING and not record.is_prerun:
                        self.starts.setdefault(record.id, now)
            job = _job_of(fact)
            if job is None:
                continue
            self._note_use(job, now)
            if job not in jobs and job not in self.finishes:
                self.finishes[job] = now
                outcome = (
                    Outcome.CANCELLED if isinstance(fact, e.JobWithdrawn) else Outcome.SUCCEEDED
                )
                self._facts.extend(self._dependencies.ended(job, outcome))

    def _note_use(self, job: str, now: int) -> None:
        """What it holds may have changed."""
        record = self.controller.state.jobs.get(job)
        placement = None if record is None or record.phase in ENDED else record.placement
        milli = 0 if placement is None else placement.total_share
        since, before = self._holding.get(job, (now, 0))
        if milli == before:
            return
        if before and job not in self._on_slots:
            self._stays.append(Stay(since, now, before))
        if before:
            self._held[job] = self._held.get(job, 0) + before * (now - since)
        self._holding[job] = (now, milli)
        if placement is not None:
            self._note_devices(job, placement)
        if before and not milli and record is not None:
            self._preemptions += 1

    def _note_devices(self, job: str, placement: Placement) -> None:
        if self._devices.counts_placement(placement, self.controller.state.topology):
            self._on_slots.discard(job)
        else:
            self._on_slots.add(job)

    def column(
        self,
        counted: Sequence[StoredJob],
        spec: PolicySpec,
        name: str,
        kind: str,
        queues: Mapping[str, Queue],
        end: int,
    ) -> Column:
        for job in list(self._holding):  # of those that have not ended by then
            since, milli = self._holding[job]
            if milli and job not in self._on_slots:
                self._stays.append(Stay(since, end, milli))
        topology = self.controller.state.topology
        gone = self.controller.state.forgotten
        return Column(
            name=name,
            kind=kind,
            policy=spec.name,
            options=dict(spec.options),
            gpus=CountedDevices.of(topology, gone).gpus,
            fates={
                row.id: Fate(
                    self.starts.get(row.id), self.finishes.get(row.id), self._held.get(row.id, 0)
                )
                for row in counted
            },
            stays=self._stays,
            preemptions=self._preemptions,
            queues=queues,
        )

    def assumption(self) -> str:
        return self._expected.basis()


def _job_of(fact: e.Event) -> str | None:
    run = getattr(fact, "run", None)
    if run is not None:
        return str(run.job)
    return fact.job if isinstance(fact, e.JobWithdrawn | e.JobReleased) else None


def _notes(first: Continuation, standing: set[str], question: Question) -> Iterator[str]:
    said = first.assumption()
    yield said[0].upper() + said[1:]
    if standing:
        yield (
            f"{plural(len(standing), 'job')} held by hand, or for an input,"
            f" {'is' if len(standing) == 1 else 'are'} left out."
        )
    if question.more_nodes:
        yield "The new nodes are there at once, of the kind that there is most of."
