"""Pre-runs: which new jobs need one, which wait for that of another job, and which programs have passed.

A program is remembered by what it is started from: user, folder, command, variables and files. That it has
passed is stored like the key of a request, and forgotten after as many days.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from trainmaster.daemon.dependencies import Dependencies
from trainmaster.daemon.job_history import Prerun
from trainmaster.daemon.live_job import Hold, LiveJob
from trainmaster.daemon.report_events import LoggedEvent
from trainmaster.model import events as e
from trainmaster.model.reasons import Reason, Why
from trainmaster.store.rows import KeyRow
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


class Preruns:
    """Live jobs that are to pre-run, by program; the first of each does, the others wait for it."""

    def __init__(self, store: Store, jobs: dict[str, LiveJob], dependencies: Dependencies) -> None:
        self._store = store
        self._jobs = jobs
        self._dependencies = dependencies
        self._by_program: dict[str, dict[str, None]] = {}
        self._passed: dict[str, str] = {}
        """By program: the job that passed for it."""

    # -- new jobs ------------------------------------------------------------------------------------

    def plan(self, new_jobs: Sequence[LiveJob]) -> None:
        """Decide for new jobs, beside the event loop: the store is asked."""
        others: list[LiveJob] = []
        for live in new_jobs:
            if not live.recipe.preflight or not live.job.demand.can_prerun:
                continue
            program = program_digest(live)
            passed = self._who_passed(program)
            if passed:
                self._note(live, Prerun(program, "skipped", passed_as=passed))
                continue
            self._note(live, Prerun(program))
            if program and self._leader(live, [*self._of(program), *others]):
                live.holds.add(Hold.PRERUN)
            elif program:
                others.append(live)

    def register(self, lives: Iterable[LiveJob]) -> None:
        """Take in new jobs, or those of before a restart."""
        for live in lives:
            prerun = live.history.prerun
            if prerun is not None and prerun.program:
                self._by_program.setdefault(prerun.program, {})[live.id] = None
                if prerun.result == "passed":
                    self._passed[prerun.program] = live.id

    def forget(self, live: LiveJob) -> None:
        prerun = live.history.prerun
        there = {} if prerun is None else self._by_program.get(prerun.program, {})
        there.pop(live.id, None)
        if prerun is not None and not there:
            self._by_program.pop(prerun.program, None)

    def _who_passed(self, program: str) -> str:
        if not program:
            return ""
        if program not in self._passed:
            row = self._store.key(f"{KEYS}{program}")
            if row is None:
                return ""
            self._passed[program] = str(json.loads(row.answer_json))
        return self._passed[program]

    def _leader(self, live: LiveJob, others: Sequence[LiveJob]) -> str:
        """The job among them that pre-runs its program, or will before this one could; empty: none."""
        program, holds = _program(live), live.holds - {Hold.PRERUN}
        for other in others:
            if other is live or _program(other) != program or not other.holds <= holds:
                continue
            is_to_prerun = other.record is None or other.record.is_prerun
            if is_to_prerun and not other.has_ended and _wants(other):
                return other.id
        return ""

    def _of(self, program: str) -> list[LiveJob]:
        return [self._jobs[id] for id in self._by_program.get(program, ()) if id in self._jobs]

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
            if isinstance(event, e.RunPassed) and prerun.result != "passed":
                continue
            if prerun.program not in self._passed:
                self._passed[prerun.program] = live.id
                yield KeyRow(f"{KEYS}{prerun.program}", now, "", json.dumps(live.id))

    def follow_up(self, touched: Iterable[LiveJob]) -> Iterator[LoggedEvent]:
        """What the jobs that wait for a pre-run do after a step: start, pre-run in their turn, or wait on."""
        seen: dict[str, bool] = {}
        failed: dict[str, str] = {}
        for live in touched:
            prerun = live.history.prerun
            if prerun is not None and prerun.program:
                is_unsure = prerun.result == "unsure"
                seen[prerun.program] = seen.get(prerun.program, False) or is_unsure
                if prerun.result == "failed" and live.has_ended:
                    failed[prerun.program] = live.id
        for program, is_unsure in seen.items():
            yield from self._settle(program, is_unsure, failed.get(program, ""))

    def follow_up_all(self) -> Iterator[LoggedEvent]:
        """The same after a restart."""
        for program in list(self._by_program):
            if any(Hold.PRERUN in live.holds for live in self._of(program)):
                self._who_passed(program)
            yield from self._settle(program, False)

    def _settle(self, program: str, is_unsure: bool, failed_as: str = "") -> Iterator[LoggedEvent]:
        waiting = [live for live in self._of(program) if Hold.PRERUN in live.holds]
        passed = self._passed.get(program, "")
        if passed or is_unsure:
            for live in self._of(program):
                record = live.record
                if record is None or not record.is_prerun or record.placement is not None:
                    continue
                if live.id == passed or not (passed or Hold.PRERUN in live.holds):
                    continue
                self._note(live, Prerun(program, "skipped", passed_as=passed))
                yield LoggedEvent(e.PrerunWaived(live.id), {"passed_as": passed})
                yield from self._dependencies.remove_hold(live, Hold.PRERUN)
            return
        for live in waiting:
            if not self._leader(live, self._of(program)):
                if live.history.prerun is not None and failed_as:
                    self._note(live, replace(live.history.prerun, failed_as=failed_as))
                told = {"failed_as": failed_as} if failed_as else {}
                for logged in self._dependencies.remove_hold(live, Hold.PRERUN):
                    yield replace(logged, detail={**logged.detail, **told})

    def reason(self, live: LiveJob) -> Reason:
        """Why a job waits that is held for the pre-run of another."""
        leader = self._leader(live, self._of(_program(live)))
        held_by = (leader,) if leader else ()
        return Reason(Why.PRERUN, live.job.demand.nominal.total_share, held_by=held_by)

    @staticmethod
    def _note(live: LiveJob, prerun: Prerun) -> None:
        live.history = replace(live.history, prerun=prerun)


def _program(live: LiveJob) -> str:
    return "" if live.history.prerun is None else live.history.prerun.program


def _wants(live: LiveJob) -> bool:
    prerun = live.history.prerun
    return prerun is not None and prerun.result not in ("skipped", "passed", "unsure")
