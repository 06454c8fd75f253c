"""Pre-runs: which new jobs need one, which wait for that of another job, and which programs have passed.

A program is remembered by what it is started from: user, folder, command, variables and files. That it has
passed is stored like the key of a request, and forgotten after as many days. Everything but `look_up` is for
the event loop alone.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from trainmaster.daemon.dependencies import Dependencies
from trainmaster.daemon.job_history import Prerun
from trainmaster.daemon.live_job import Hold, LiveJob
from trainmaster.daemon.report_events import LoggedEvent
from trainmaster.model import events as e
from trainmaster.model.reasons import Reason, Why
from trainmaster.store.rows import KEYS_LIVE_MS, KeyRow
from trainmaster.store.store import Store

KEYS = "prerun:"
"""Before a program's digest in the table of keys."""


def program_digest(live: LiveJob) -> str:
    """What its processes are started from, in short; empty where its files were not looked at."""
    recipe = live.recipe
    if not recipe.program_digest:
        return ""
    stated = [
        *(recipe.user, str(live.spec.get("workdir") or ""), recipe.command, recipe.prefix),
        *(sorted(recipe.env), recipe.ranks.value, live.job.demand.gpu_type, recipe.program_digest),
    ]
    return hashlib.sha256(json.dumps(stated).encode()).hexdigest()[:32]


@dataclass(frozen=True, slots=True)
class Passed:
    """That a program has passed."""

    job: str
    at_ms: int

    def is_remembered(self, now: int) -> bool:
        return now - self.at_ms <= KEYS_LIVE_MS


class Leaders:
    """Of the jobs of one program: those that pre-run it, or will before others that wait could."""

    def __init__(self, lives: Iterable[LiveJob]) -> None:
        self._lives = [live for live in lives if _may_lead(live)]
        self._found: dict[object, LiveJob | None] = {}
        """By what decides: elements of an array have it in common."""

    def of(self, live: LiveJob) -> LiveJob | None:
        """The one that this job waits for; None: it need not wait."""
        job = live.job
        alike = job.queue, job.priority, job.demand, frozenset(live.holds)
        if alike not in self._found:
            self._found[alike] = next((each for each in self._lives if _leads(each, live)), None)
        return self._found[alike]

    def add(self, live: LiveJob) -> None:
        """One that pre-runs from now on, for want of a leader."""
        self._lives.append(live)
        self._found = {alike: found for alike, found in self._found.items() if found is not None}


class Preruns:
    """Live jobs that are to pre-run, by program; the first of each does, the others wait for it."""

    def __init__(self, store: Store, jobs: dict[str, LiveJob], dependencies: Dependencies) -> None:
        self._store = store
        self._jobs = jobs
        self._dependencies = dependencies
        self._by_program: dict[str, dict[str, LiveJob]] = {}
        """Those that have neither passed nor been spared it; also new ones, before their first step."""
        self._passed: dict[str, Passed] = {}
        """By program; what is forgotten is dropped when another has passed."""
        self._unsure: set[str] = set()
        """Programs of which a pre-run was unsure in the present step."""

    # -- new jobs ------------------------------------------------------------------------------------

    def look_up(self, new_jobs: Iterable[LiveJob]) -> Mapping[str, Passed]:
        """Find out the programs of new jobs, and who has passed for them; may run beside the event loop."""
        found: dict[str, Passed | None] = {}
        for live in new_jobs:
            if live.recipe.preflight and live.job.demand.can_prerun:
                program = program_digest(live)
                _note(live, Prerun(program))
                if program not in found:
                    found[program] = self._stored(program)
        return {program: passed for program, passed in found.items() if passed is not None}

    def plan(self, new_jobs: Sequence[LiveJob], stored: Mapping[str, Passed], now: int) -> None:
        """Decide for new jobs, and take them in; `stored` is what was looked up for them."""
        leaders: dict[str, Leaders] = {}
        for live in new_jobs:
            program = _program(live)
            if not program:
                continue
            passed = self._who_passed(program, now) or stored.get(program)
            if passed is not None and passed.is_remembered(now):
                _note(live, Prerun(program, "skipped", passed_as=passed.job))
                continue
            self._passed.pop(program, None)
            there = self._by_program.setdefault(program, {})
            if program not in leaders:
                leaders[program] = Leaders(there.values())
            if leaders[program].of(live) is not None:
                live.holds.add(Hold.PRERUN)
            else:
                leaders[program].add(live)
            there[live.id] = live

    def withdraw(self, new_jobs: Sequence[LiveJob]) -> Iterator[LoggedEvent]:
        """New jobs that were planned for are not taken in: those that wait for them do not any more."""
        for live in new_jobs:
            self.forget(live)
        for program in {_program(live): None for live in new_jobs}:
            yield from self._settle(program, False)

    def register(self, lives: Iterable[LiveJob]) -> None:
        """Take in jobs of before a restart, or that were found."""
        for live in lives:
            if _program(live) and _wants(live):
                self._by_program.setdefault(_program(live), {})[live.id] = live

    def forget(self, live: LiveJob) -> None:
        """It has ended, or is not to pre-run any more."""
        there = self._by_program.get(_program(live), {})
        there.pop(live.id, None)
        if not there:
            self._by_program.pop(_program(live), None)

    def _stored(self, program: str) -> Passed | None:
        row = self._store.key(f"{KEYS}{program}") if program else None
        return None if row is None else Passed(str(json.loads(row.answer_json)), row.at_ms)

    def _who_passed(self, program: str, now: int) -> Passed | None:
        passed = self._passed.get(program)
        return passed if passed is not None and passed.is_remembered(now) else None

    # -- what happened -------------------------------------------------------------------------------

    def note(self, events: Iterable[LoggedEvent], now: int) -> Iterator[KeyRow]:
        """Take note of pre-runs that passed, and of gangs that succeeded: what is to be stored of them."""
        for logged in events:
            event = logged.event
            if not isinstance(event, e.RunPassed | e.RunSucceeded):
                continue
            live = self._jobs.get(event.run.job)
            prerun = None if live is None else live.history.prerun
            if live is None or prerun is None or not prerun.program:
                continue
            self.forget(live)
            if isinstance(event, e.RunPassed) and prerun.result != "passed":
                self._unsure.add(prerun.program)
            elif self._who_passed(prerun.program, now) is None:
                kept = {key: each for key, each in self._passed.items() if each.is_remembered(now)}
                self._passed = {**kept, prerun.program: Passed(live.id, now)}
                yield KeyRow(f"{KEYS}{prerun.program}", now, "", json.dumps(live.id))

    def follow_up(self, touched: Iterable[LiveJob]) -> Iterator[LoggedEvent]:
        """What the jobs that wait for a pre-run do after a step: start, pre-run in their turn, or wait on."""
        unsure, self._unsure = self._unsure, set()
        failed: dict[str, str] = {}
        for live in touched:
            prerun = live.history.prerun
            if prerun is not None and prerun.program in self._by_program:
                has_failed = prerun.result == "failed" and live.has_ended
                failed[prerun.program] = live.id if has_failed else failed.get(prerun.program, "")
        for program, failed_as in failed.items():
            yield from self._settle(program, program in unsure, failed_as)

    def follow_up_all(self, now: int) -> Iterator[LoggedEvent]:
        """The same after a restart."""
        for program, lives in [*self._by_program.items()]:
            is_awaited = any(Hold.PRERUN in live.holds for live in lives.values())
            passed = self._stored(program) if is_awaited else None
            if passed is not None and passed.is_remembered(now):
                self._passed[program] = passed
            yield from self._settle(program, False)

    def _settle(self, program: str, is_unsure: bool, failed_as: str = "") -> Iterator[LoggedEvent]:
        of_program = [*self._by_program.get(program, {}).values()]
        known = [live for live in of_program if live.record is not None]
        passed = self._passed.get(program)
        if passed is not None or is_unsure:
            passed_as = "" if passed is None else passed.job
            for live in known:
                record = live.record
                if record is None or not record.is_prerun or record.placement is not None:
                    continue
                if not passed_as and Hold.PRERUN not in live.holds:
                    continue
                _note(live, Prerun(program, "skipped", passed_as=passed_as))
                self.forget(live)
                yield LoggedEvent(e.PrerunWaived(live.id), {"passed_as": passed_as})
                yield from self._dependencies.remove_hold(live, Hold.PRERUN)
            return
        leaders = Leaders(of_program)
        for live in known:
            if Hold.PRERUN not in live.holds or leaders.of(live) is not None:
                continue
            if live.history.prerun is not None and failed_as:
                _note(live, replace(live.history.prerun, failed_as=failed_as))
            told = {"failed_as": failed_as} if failed_as else {}
            for logged in self._dependencies.remove_hold(live, Hold.PRERUN):
                yield replace(logged, detail={**logged.detail, **told})
            leaders.add(live)

    def reason(self, live: LiveJob) -> Reason:
        """Why a job waits that is held for the pre-run of another."""
        others = self._by_program.get(_program(live), {}).values()
        leader = next((other for other in others if _leads(other, live)), None)
        held_by = () if leader is None else (leader.id,)
        return Reason(Why.PRERUN, live.job.demand.nominal.total_share, held_by=held_by)


def _note(live: LiveJob, prerun: Prerun) -> None:
    live.history = replace(live.history, prerun=prerun)


def _program(live: LiveJob) -> str:
    return "" if live.history.prerun is None else live.history.prerun.program


def _wants(live: LiveJob) -> bool:
    prerun = live.history.prerun
    return prerun is not None and prerun.result not in ("skipped", "passed", "unsure")


def _may_lead(live: LiveJob) -> bool:
    """Whether it pre-runs its program, or is to: without waiting for another job that does."""
    if Hold.PRERUN in live.holds or not _wants(live) or live.has_ended:
        return False
    return live.record is None or live.record.is_prerun


def _leads(other: LiveJob, live: LiveJob) -> bool:
    """Whether a job of the same program pre-runs it, or waits for nothing but what this one waits for too.

    One that waits in another queue, with less priority, for another device (also after a failure that speaks
    against those it had) or for the time of its retry may start later than this one.
    """
    if other is live or not _may_lead(other) or not other.holds <= live.holds:
        return False
    record, theirs, own = other.record, other.job, live.job
    if record is not None and record.placement is not None:
        return True
    if record is not None and record.retry_at_ms is not None:
        return False
    if theirs.queue != own.queue or theirs.priority < own.priority:
        return False
    asked = theirs.demand if record is None else record.demand
    return asked.on_one_device() == own.demand.on_one_device()
