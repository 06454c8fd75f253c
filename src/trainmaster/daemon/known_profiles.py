"""What was measured of a program serves its next runs: same user, folder, program and arguments."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

from trainmaster.config.program_words import split_program
from trainmaster.daemon.job_history import JobHistory
from trainmaster.daemon.live_job import LiveJob, stored_submission
from trainmaster.model.job import Estimate, Job, Source
from trainmaster.model.job_state import ENDED_STATES, JobState
from trainmaster.model.profile import Profile
from trainmaster.model.program_key import ProgramKey
from trainmaster.model.units import NOMINAL
from trainmaster.store.rows import JobFilter
from trainmaster.store.store import Store

US_PER_MS = 1_000
LOOKED_THROUGH = 20
"""Ended jobs of a user and name among which an earlier run of the program is looked for."""
MOST = 4_096
"""Programs that are remembered; the oldest are looked up again."""


@dataclass(frozen=True, slots=True)
class KnownProgram:
    """What is known of a program before it starts."""

    profile: Profile
    steps: int | None = None
    """How many it made when it last succeeded, where that is known."""
    startup_ms: int = 0
    """How long it ran before its first step, where that is known."""

    def estimate(self, job: Job) -> Estimate | None:
        """The work of a job of it on one GPU: its start-up and its steps, each as long as they were."""
        steps = job.iterations or self.steps
        if not steps or not self.profile.step_us or job.demand.nominal.count != 1:
            return None
        in_steps = steps * self.profile.step_us * NOMINAL // US_PER_MS
        return Estimate(self.startup_ms * NOMINAL + in_steps, Source.PROFILE)


class KnownProfiles:
    """By program: of jobs that live or have just ended, else of ended ones in the store.

    Safe to call from several threads: `of` asks the store beside the event loop.
    """

    def __init__(self, store: Store, live_of: Callable[[ProgramKey], Iterable[LiveJob]]) -> None:
        self._store = store
        self._live_of = live_of
        """The live jobs of a program with its arguments."""
        self._known: dict[ProgramKey, KnownProgram | None] = {}
        self._lock = threading.Lock()

    def learn(self, live: LiveJob) -> None:
        """Take in what is known of a live job."""
        record = live.record
        if record is not None and record.profile is not None:
            key = key_of(live)
            before = self._known.get(key)
            found = _known(record.profile, live.history, live.state)
            if before is not None:
                steps, startup_ms = (
                    found.steps or before.steps,
                    found.startup_ms or before.startup_ms,
                )
                found = replace(found, steps=steps, startup_ms=startup_ms)
            self._keep(key, found)

    def of(self, live: LiveJob) -> KnownProgram | None:
        """What is known of the program of a new job; what lives and the store are asked once for each."""
        key = key_of(live)
        if key not in self._known:
            self._keep(key, self._stored(key, live.name), unless_known=True)
            for other in self._live_of(key):
                self.learn(other)
        with self._lock:
            return self._known.get(key)

    def _stored(self, key: ProgramKey, name: str) -> KnownProgram | None:
        wanted = JobFilter(frozenset(ENDED_STATES), user=key.user, text=name, limit=LOOKED_THROUGH)
        for row in self._store.jobs(wanted):
            spec = json.loads(row.spec_json)["spec"]
            if program_key(row.user, spec, stored_submission(row).recipe.command) != key:
                continue
            history = JobHistory.from_json(row.record_json)
            if history.profile is not None:
                return _known(history.profile, history, row.state)
        return None

    def _keep(
        self, key: ProgramKey, known: KnownProgram | None, *, unless_known: bool = False
    ) -> None:
        with self._lock:
            if unless_known and key in self._known:  # it was learnt meanwhile
                return
            self._known.pop(key, None)
            self._known[key] = known
            if len(self._known) > MOST:
                del self._known[next(iter(self._known))]


def key_of(live: LiveJob) -> ProgramKey:
    return program_key(live.job.user, live.spec, live.recipe.command)


def program_key(user: str, spec: Mapping[str, object], command: tuple[str, ...]) -> ProgramKey:
    return ProgramKey(user, str(spec.get("workdir") or ""), *split_program(command))


def _known(profile: Profile, history: JobHistory, state: str) -> KnownProgram:
    """What a job says of its program: how many steps it makes, if it has succeeded."""
    at, first = history.progress, history.first_report
    steps = at.step if at is not None and state == JobState.SUCCEEDED else None
    if first is None:
        return KnownProgram(profile, steps)
    startup_ms = max(0, first.ran_ms - first.step * profile.step_us // US_PER_MS)
    return KnownProgram(profile, steps, startup_ms)
