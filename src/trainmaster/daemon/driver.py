"""The loop: facts in, one step, kept in the store, and only then orders out to the engine.

All of it happens in one task of the event loop, so that steps come one after another. A step whose
keeping fails is held until the store takes it: no order leaves and nothing else is decided before.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from time import perf_counter

import structlog

from trainmaster.core.controller import Controller, Decision
from trainmaster.core.lifecycle import ENDED
from trainmaster.daemon.clock import Clock
from trainmaster.daemon.contract import Conflict, Unavailable
from trainmaster.daemon.courier import Courier
from trainmaster.daemon.facts import Fact, facts_of
from trainmaster.daemon.feed import Feed
from trainmaster.daemon.gate import Gate, StateOf
from trainmaster.daemon.limits import Limits
from trainmaster.daemon.live import Hold, LiveJob
from trainmaster.daemon.metering import metered
from trainmaster.daemon.meters import Meters
from trainmaster.daemon.policies import Options
from trainmaster.daemon.stories import job_of, told
from trainmaster.engines.contract import Engine
from trainmaster.model import codec
from trainmaster.model import events as e
from trainmaster.model.reports import Progressed, Report
from trainmaster.model.units import SECOND
from trainmaster.store.contract import Deposed, Store, StoreError
from trainmaster.store.rows import Batch, KeyRow, ProgressRow, StepRow

log = structlog.get_logger("trainmaster.daemon")

PROGRESS_WAIT_S = 2.0
"""Progress alone is no reason to hurry: it is taken in with the next step, or after this long."""
RETRY_S = 1.0
PIECE = 250
"""Facts that one step takes in. Ten thousand jobs at once are as many steps as that makes, kept together:
in between others are answered."""


@dataclass(slots=True)
class Wish:
    """What somebody asked for: taken in by one step as a whole, answered when that is kept."""

    facts: Sequence[Fact] = ()
    newcomers: Sequence[LiveJob] = ()
    keys: Sequence[KeyRow] = ()
    is_late: bool = False
    """All that it is about had ended before it was taken in."""
    about: str | None = None
    """A job: if what is asked of it is refused, so is the wish."""
    kept: asyncio.Future[None] = field(
        default_factory=lambda: asyncio.get_running_loop().create_future()
    )


@dataclass(frozen=True, slots=True)
class _Step:
    """What became of some facts."""

    decision: Decision
    batch: Batch
    touched: set[str]


class Driver:
    """Owns the controller and everything that a step touches."""

    def __init__(
        self,
        controller: Controller,
        store: Store,
        engine: Engine,
        clock: Clock,
        policy: tuple[str, Options],
        seq: int = 0,
        meters: Meters | None = None,
        home: str = "",
    ) -> None:
        self.controller = controller
        self.store = store
        self.engine = engine
        self.clock = clock
        self.policy = policy
        """Name and options of the policy that the controller has now."""
        self.policy_since_ms = clock.now()
        self.home = home
        """The name of the data folder that its runs are in."""
        self.seq = seq
        """The last step that was kept."""
        self.jobs: dict[str, LiveJob] = {}
        self.gate = Gate(self.jobs)
        self.courier = Courier(engine, self.jobs, clock)
        self.limits = Limits()
        self.feed = Feed()
        self.meters = meters or Meters()
        self.trouble = ""
        """Why nothing can be kept now."""
        self.refused = ""
        """What the policy raised, or why an action of it was refused, last."""
        self._wishes: list[Wish] = []
        self._reports: list[tuple[Report, int]] = []
        self._followups: list[Fact] = []
        self._news = asyncio.Event()
        self.turn = asyncio.Lock()
        """Held while a step is made and kept: in between, controller and store agree."""
        self.is_torn = False
        """Whether the controller has made a step that is not kept yet."""
        self._is_ending = False
        self._wake_at = controller.next_step_at
        self._progress_due = False
        self._unsure: set[str] = set()
        """Jobs whose dependencies could not be looked up."""

    # -- asking --------------------------------------------------------------------------------------

    async def ask(self, wish: Wish) -> None:
        """Have it taken in; returns when it is durable."""
        self.refuse_in_trouble()
        self._wishes.append(wish)
        self._news.set()
        await wish.kept

    def refuse_in_trouble(self) -> None:
        """Before anything is changed for a wish that could not be kept."""
        if self.trouble:
            raise Unavailable(self.trouble)

    def hear(self, report: Report, number: int) -> None:
        """An engine's report, in the order in which they come."""
        self._reports.append((report, number))
        if not isinstance(report, Progressed):
            self._news.set()
        elif not self._progress_due:
            self._progress_due = True
            self._ring_in(PROGRESS_WAIT_S)

    def _ring_in(self, seconds: float) -> None:
        asyncio.get_running_loop().call_later(seconds, self._news.set)

    def follow_up(self, facts: Iterable[Fact]) -> None:
        """Facts that follow from what was kept: taken in by the next step."""
        self._followups.extend(facts)
        if self._followups:
            self._news.set()

    def limit(self, live: LiveJob) -> None:
        """Note whether its running time is limited."""
        if self.limits.note(live):
            self._news.set()

    # -- the loop ------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Until cancelled, or deposed; a step that has begun is ended first."""
        step: asyncio.Task[None] | None = None
        self._news.set()  # what was replayed may ask for a pass
        try:
            while True:
                await self._until_due()
                step = asyncio.create_task(self.step())
                await asyncio.shield(step)
        except asyncio.CancelledError:
            self._is_ending = True
            if step is not None:
                await asyncio.wait([step])
            raise

    async def _until_due(self) -> None:
        wait = self._seconds_to_wait()
        if wait is None or wait > 0:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._news.wait(), wait)
        self._news.clear()

    def _seconds_to_wait(self) -> float | None:
        if self._wishes or self._followups:
            return 0.0
        now = self.clock.now()
        due = [time for time in (self._wake_at, self.limits.next_due(now)) if time is not None]
        return max(0.0, (min(due) - now) / SECOND) if due else None

    async def step(self) -> None:
        """Take everything in that is known by now, decide, keep it, carry it out."""
        async with self.turn:
            await self._step()

    async def _step(self) -> None:
        wishes, self._wishes = self._wishes, []
        reports, self._reports = self._reports, []
        followups, self._followups = self._followups, []
        self._progress_due = False
        now = self.clock.now()
        facts = self._timely(followups)
        for wish in wishes:
            for live in wish.newcomers:
                self.jobs[live.id] = live
            timely = self._timely(wish.facts)
            wish.is_late = bool(wish.facts) and not timely
            facts.extend(timely)
        progress: list[ProgressRow] = []
        for report, number in reports:
            facts.extend(self._taken(report, number, now, progress))
        facts.extend(self.limits.overdue(now))
        facts.extend(self._looked_again())
        self.is_torn = True
        steps: list[_Step] = []
        for begin in range(0, max(1, len(facts)), PIECE):
            if steps:
                await asyncio.sleep(0)
            piece = facts[begin : begin + PIECE]
            steps.append(self._decided(now, piece, self.seq + 1 + len(steps)))
        keys = tuple(key for wish in wishes for key in wish.keys)
        batches = [step.batch for step in steps]
        batches[-1] = replace(batches[-1], progress=tuple(progress), keys=keys)
        await self._keep(batches)
        for step in steps:
            self.courier.note(step.decision.orders)
        self._note_policy(facts, now)
        refused = self._refused(steps)
        for wish in wishes:
            self._welcome(wish, refused)
        for step in steps:
            self._wake_at = step.decision.wake_at
            await self.courier.carry(step.decision.orders)
            self.feed.tell(step.batch.stories)
        if self.courier.unsent:
            self._ring_in(RETRY_S)
        self._follow_ends({id for step in steps for id in step.touched})

    def _timely(self, facts: Iterable[Fact]) -> list[Fact]:
        """Without those about jobs that have ended since they were asked for."""
        told = ((fact, job_of(fact.event)) for fact in facts)
        return [fact for fact, job in told if job is None or job in self.jobs]

    def _decided(self, now: int, facts: Sequence[Fact], seq: int) -> _Step:
        """One step of the controller, and all that is to be kept of it."""
        touched = {job for job in map(job_of, (fact.event for fact in facts)) if job is not None}
        touched.update(self.controller.state.promises)
        started = perf_counter()
        decision = self.controller.step(now, [fact.event for fact in facts])
        self.meters.stepped(perf_counter() - started)
        batch = self._batch(now, facts, decision, touched, seq)
        metered(self.meters, facts, self.jobs, now)
        return _Step(decision, batch, touched)

    def _note_policy(self, facts: Sequence[Fact], now: int) -> None:
        for fact in facts:
            if isinstance(fact.event, e.PolicyChanged):
                self.policy = (fact.event.name, fact.event.options)
                self.policy_since_ms, self.refused = now, ""

    def _refused(self, steps: Sequence[_Step]) -> dict[str, str]:
        """By job: why something that was asked of it was not done."""
        found: dict[str, str] = {}
        for refusal in (each for step in steps for each in step.decision.refusals):
            found[refusal.job] = refusal.why.value
            self.refused = f"{refusal.job}: {refusal.why.value} {refusal.detail}".strip()
            log.warning("refused", job=refusal.job, why=refusal.why.value, detail=refusal.detail)
        return found

    def _welcome(self, wish: Wish, refused: Mapping[str, str]) -> None:
        """Hold newcomers for those that they wait for, some of whom may have ended just now."""
        self.gate.admit(wish.newcomers)
        state_of = lru_cache(self.state_of)
        for live in wish.newcomers:
            self.limit(live)
            if Hold.DEPENDENCY in live.holds:
                self.look_at(live, state_of)
        if wish.kept.done():
            return
        if wish.is_late:
            wish.kept.set_exception(Conflict("it has ended meanwhile."))
            return
        why = refused.get(wish.about or "")
        if why is None:
            wish.kept.set_result(None)
        else:
            wish.kept.set_exception(Conflict(f"job {wish.about} stays as it is: {why}."))

    def look_at(self, live: LiveJob, state_of: StateOf) -> None:
        """See whether what it waits for has come; later, where the store cannot say now."""
        try:
            self.follow_up(list(self.gate.looked_at(live, state_of)))
        except StoreError as error:
            log.warning("a dependency cannot be looked up now", job=live.id, why=str(error))
            self._unsure.add(live.id)
            self._ring_in(RETRY_S)

    def _looked_again(self) -> list[Fact]:
        """Those whose dependencies could not be looked up before."""
        again, self._unsure = self._unsure, set()
        for id in again:
            if id in self.jobs:
                self.look_at(self.jobs[id], self.state_of)
        facts, self._followups = self._followups, []
        return facts

    def _taken(
        self, report: Report, number: int, now: int, progress: list[ProgressRow]
    ) -> Iterator[Fact]:
        live = self.jobs.get(report.run.job)
        if live is None:
            return
        if report.run.attempt > live.attempt:
            live.attempt, live.seen = report.run.attempt, 0
        if report.run.attempt < live.attempt or number <= live.seen:
            return
        live.seen = number
        at_ms = min(now, max(report.at_ms, live.job.submit_ms))
        try:
            found = list(facts_of(report, live, now))
        except (ArithmeticError, ValueError):
            log.exception("a report makes no sense and is left out", report=str(report)[:500])
            return
        yield from found
        if isinstance(report, Progressed):
            row = ProgressRow(live.id, at_ms, report.step, report.loss, report.samples_per_s)
            progress.append(row)

    # -- keeping -------------------------------------------------------------------------------------

    def _batch(
        self, now: int, facts: Sequence[Fact], decision: Decision, touched: set[str], seq: int
    ) -> Batch:
        touched.update(order.run.job for order in decision.orders)
        touched.update(job for job, _ in decision.given_up)
        self._tie(touched, now)
        topology = self.controller.state.topology
        stories = told(facts, decision.orders, decision.notices, topology, now, seq)
        return Batch(
            step=StepRow(
                seq,
                now,
                codec.dumps(tuple(fact.event for fact in facts)),
                codec.dumps(tuple(decision.orders)),
            ),
            jobs=tuple(self.jobs[id].row(now) for id in sorted(touched) if id in self.jobs),
            stories=tuple(stories),
        )

    def _tie(self, touched: Iterable[str], now: int) -> None:
        """Bring what the daemon keeps of these jobs up to the controller's records."""
        records = self.controller.state.jobs
        for id in touched:
            live = self.jobs.get(id)
            if live is None:
                continue
            live.record = records.get(id, live.record)
            if live.record is not None:
                live.job = live.record.job
            if live.has_ended and live.finish_ms is None:
                live.finish_ms = max(live.ended_ms or now, live.job.submit_ms)
                live.paused(live.finish_ms)

    async def _keep(self, batches: Sequence[Batch]) -> None:
        """All of them or none, until the store takes them."""
        while True:
            try:
                await asyncio.to_thread(self.store.append, batches)
            except Deposed:
                raise
            except StoreError as error:
                if self.trouble != str(error):
                    log.error("the store cannot be written", why=str(error))
                self.trouble = str(error)
                self.meters.store_failed()
                if self._is_ending:
                    raise
                await asyncio.sleep(RETRY_S)
            else:
                if self.trouble:
                    log.info("the store can be written again")
                self.trouble = ""
                self.seq, self.is_torn = batches[-1].step.seq, False
                return

    # -- ends -------------------------------------------------------------------------------------------

    def _follow_ends(self, touched: Iterable[str]) -> None:
        """Forget jobs that have ended, and release those that waited for them."""
        ended = [self.jobs[id] for id in touched if id in self.jobs and self.jobs[id].has_ended]
        states = {live.id: _state(live) for live in ended}
        for live in ended:
            del self.jobs[live.id]
            self.courier.forget(live.id)
            self.limits.forget(live.id)
            self.meters.finished(live.job.queue, states[live.id])
        for live in ended:
            for waiting in self.gate.waiting_for(live):
                self.look_at(waiting, lambda id: states.get(id) or self.state_of(id))
            self.follow_up(self.gate.placed_after(live))

    def state_of(self, id: str) -> str | None:
        """The state of any job, live or ended."""
        live = self.jobs.get(id)
        if live is not None:
            return _state(live)
        row = self.store.job(id)
        return None if row is None else row.state


def _state(live: LiveJob) -> str:
    return "pending" if live.record is None else live.record.phase.name.lower()


def is_ended(state: str) -> bool:
    """Whether a state of a row is an end."""
    return state in {phase.name.lower() for phase in ENDED}
