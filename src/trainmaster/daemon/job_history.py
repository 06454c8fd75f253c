"""What has happened to a job so far, as one value: shown to users, and stored as JSON with its row."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

from trainmaster.failures.retry_rules import FailedAttempt
from trainmaster.model import codec
from trainmaster.model.codec import stored_as
from trainmaster.model.deadline_notices import DeadlineNotice
from trainmaster.model.failure import Failure
from trainmaster.model.memory_estimate import MemoryEstimate
from trainmaster.model.profile import Profile
from trainmaster.model.run_time import RunTimeForecast
from trainmaster.model.stop_reasons import EndReason, Suspension


@stored_as("daemon.Progress")
@dataclass(frozen=True, slots=True)
class Progress:
    """How far a job has come, as its program reports it."""

    at_ms: int
    step: int
    total_steps: int | None
    loss: float | None
    samples_per_s: float | None
    steps_per_s: float | None = None


@stored_as("daemon.FirstReport")
@dataclass(frozen=True, slots=True)
class FirstReport:
    """When a job first reported a step: until then it has started up and made these steps."""

    step: int
    ran_ms: int
    """How long its run had run."""
    work: int
    """ms x parts per million of nominal speed."""


@stored_as("daemon.LastFreeze")
@dataclass(frozen=True, slots=True)
class LastFreeze:
    """How a run was suspended in memory the last time, and what it keeps."""

    how: str
    """The freezer: `stop`, `driver` or `cooperative`."""
    host_bytes: int | None = None
    gpu_bytes: int | None = None


@stored_as("daemon.LastHang")
@dataclass(frozen=True, slots=True)
class LastHang:
    """How a run hangs, or hung before it was ended for that."""

    since_ms: int
    """Its last sign of life."""
    silent_ms: int
    longest_ms: int
    is_busy: bool = False
    stepless_ms: int | None = None
    stacks: tuple[str, ...] = ()
    """Where its processes were, a sentence for each rank."""
    trouble: str = ""
    """Why there are no Python stacks of some of them."""
    attempt: int = 0
    """The attempt that hung."""
    is_over: bool = False
    """Whether it has gone on, or ended, since."""

    def at(self, now: int) -> LastHang:
        """As it is now: it has been silent for longer than when it was found."""
        more_ms = 0 if self.is_over else max(0, now - self.since_ms - self.silent_ms)
        stepless_ms = None if self.stepless_ms is None else self.stepless_ms + more_ms
        return replace(self, silent_ms=self.silent_ms + more_ms, stepless_ms=stepless_ms)


@stored_as("daemon.Prerun")
@dataclass(frozen=True, slots=True)
class Prerun:
    """What became of a job's pre-run."""

    program: str = ""
    """Digest of what its processes are started from; empty: it cannot be known again."""
    result: str = ""
    """passed, failed, skipped or unsure: it failed, perhaps for want of devices, or made no step; empty: it
    is to come."""
    attempt: int = 0
    """The attempt that it was, or is."""
    attempts: int = 0
    """How many attempts were pre-runs."""
    ran_ms: int = 0
    passed_as: str = ""
    """The job that passed for it."""
    reason: str = ""
    """Why it failed: a key of the table of reasons, ..."""
    title: str = ""
    """... and in words."""
    wants: str = ""
    """What it may have failed for want of: devices, checkpoints; empty: of nothing."""
    failed_as: str = ""
    """The job whose pre-run of the same program failed just before."""
    has_finished: bool = False
    """The program ended by itself in it, with success: its work is done again on all its devices."""


@dataclass(frozen=True, slots=True)
class JobHistory:
    """Field names are the keys of the stored JSON; one that an older store lacks has its default."""

    priority: int = 0
    retries: int = 0
    holds: tuple[str, ...] = ()
    """Values of `Hold`, sorted."""
    seen: int = 0
    """Number of the last report of `attempt` that was taken in."""
    attempt: int = 0
    """The attempt that `seen` counts."""
    adopted: int = 0
    """Number of its last report from before this store took the run over; 0: it is this store's own."""
    pids: tuple[int, ...] = ()
    run_ms: int = 0
    """How long it has run, up to `since_ms`."""
    since_ms: int | None = None
    """Since when its processes run; None while they do not."""
    exit_code: int | None = None
    before_ms: int = 0
    """How long it had run before its present attempt."""
    failed_ms: tuple[int, ...] = ()
    """How long each of its failed attempts ran."""
    samples_per_s: float | None = None
    """The highest speed that it has reported at its nominal size, ..."""
    steps_per_s: float | None = None
    """... and the highest in steps, for a program that reports no samples."""
    rate_type: str = ""
    """The type of device where it reported that."""
    saved_at_ms: int | None = None
    """When a checkpoint of it last became durable."""
    by_mps: bool = False
    """Whether its last run is, or was, a client of MPS."""
    has_hello: bool = False
    """Whether its program speaks through the SDK."""
    failure: Mapping[str, object] = field(default_factory=dict)
    """The last failure: code, rank, why, tail."""
    failed_attempts: tuple[FailedAttempt, ...] = ()
    """Its last failed attempts, oldest first: another that fails like one of them is not retried."""
    retry: str = ""
    """Why its last failed run is tried again, or is not: a sentence."""
    failed_by: Failure | None = None
    """Why its last run failed or was lost: the reason, whose fault it is, the lines that show it."""
    end: EndReason | None = None
    """Why it ended without success, or how its last run failed."""
    suspension: Suspension | None = None
    """Who suspended it, or holds it before its start; None while it runs."""
    deadline: DeadlineNotice | None = None
    """What was last said about its deadline."""
    progress: Progress | None = None
    first_report: FirstReport | None = None
    """That of its first run that is no pre-run; None: it has reported no step."""
    story_entries: int = 0
    """Entries of its story."""
    saves: int = 0
    """How often it said that it had saved."""
    freezes: int = 0
    """How often it was suspended in memory."""
    last_freeze: LastFreeze | None = None
    freezing_ms: int = 0
    """How long freezing and thawing took, all together, as far as that was measured."""
    not_frozen: str = ""
    """Why it could not be suspended in memory the last time that this failed: a sentence."""
    not_brought: str = ""
    """Why not all that its last run wrote was brought from its nodes."""
    pace: int = 100
    """Percent of its speed that its run is held back to for the sake of a guaranteed one, ..."""
    pace_why: str = ""
    """... and why: a sentence."""
    is_pace_heeded: bool = True
    """Whether its program can be held back; else it runs at full speed."""
    hang: LastHang | None = None
    slow_rank: int | None = None
    """A rank of its run that is slower than the others, ..."""
    slow_percent: int = 0
    """... and how much of their time it takes for a step (engine_reports.Straggled)."""
    slow_own_ms: int | None = None
    """Where they wait for it: what it takes of each step before that, ..."""
    slow_peers_ms: int | None = None
    """... and what they take."""
    longest_silence_ms: int = 0
    """The longest without a step and output that an attempt of it has lived through."""
    failures: int = 0
    preemptions: int = 0
    migrations: int = 0
    lost_ms: int = 0
    """Work that was done and lost, as the time that its runs trained for it."""
    gpu_ms: int = 0
    """Thousandths of a GPU x ms that it has held."""
    charged_ms: int = 0
    """What of it is in the records of GPU time, ..."""
    charged_at_ms: int = 0
    """... up to then, ..."""
    charged_lost_ms: int = 0
    """... and how much of the lost work."""
    lost_to: str = ""
    """To what it lost work last, as a `ChargeRow` says it."""
    attempts: int = 0
    """How often it was started."""
    profile: Profile | None = None
    """What was measured of it."""
    prerun: Prerun | None = None
    """Its pre-run; None: it needs none."""
    forecasts: tuple[RunTimeForecast, ...] = ()
    """What was forecast of its run time, at set parts of it."""

    memory_forecast: MemoryEstimate | None = None
    """What was expected of its GPU memory when it started, from earlier runs or its model; None: nothing."""

    @property
    def restarts(self) -> int:
        preruns = 0 if self.prerun is None else self.prerun.attempts
        return max(0, self.attempts - 1 - preruns)

    def ran_ms(self, now: int) -> int:
        """How long it has been running, all attempts together."""
        return self.run_ms + (0 if self.since_ms is None else now - self.since_ms)

    def to_json(self) -> str:
        stored = {name: getattr(self, name) for name in NAMES}
        for name in ENCODED:
            stored[name] = None if stored[name] is None else codec.encode(stored[name])
        for name in CAUSES:
            stored[name] = None if stored[name] is None else stored[name].to_json()
        named = {KEYS.get(name, name): value for name, value in stored.items()}
        return json.dumps(named, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str, **others: Any) -> JobHistory:
        """As it was stored, with other values for some fields."""
        stored: dict[str, Any] = json.loads(text)
        known = {name: stored[key] for name, key in STORED_KEYS.items() if key in stored}
        for name in ("holds", "pids", "failed_ms"):
            known[name] = tuple(known.get(name, ()))
        for name in ENCODED:
            if known.get(name) is not None:
                known[name] = codec.decode(known[name])
        for name, kind in CAUSES.items():
            if known.get(name) is not None:
                known[name] = kind.from_json(known[name])
        return cls(**known | others)


KEYS = {"story_entries": "told"}
"""Fields that stores know by another name, the one that they were first written by."""
NAMES = tuple(each.name for each in fields(JobHistory))
STORED_KEYS = {name: KEYS.get(name, name) for name in NAMES}
ENCODED = (
    *("progress", "deadline", "last_freeze", "profile"),
    *("failed_by", "failed_attempts", "hang", "prerun", "forecasts"),
    *("memory_forecast", "first_report"),
)
CAUSES: Mapping[str, type[EndReason] | type[Suspension]] = {
    "end": EndReason,
    "suspension": Suspension,
}
