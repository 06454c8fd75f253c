"""One workload through a real daemon: read its event log, its runs' journals and its jobs' logs."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.reality_workload import SLOTS, STEP_MS, PlannedJob, PolicySetup
from tests.live.daemons import LiveDaemon, live, until
from trainmaster.model import actions as a
from trainmaster.model import codec
from trainmaster.model import events as e
from trainmaster.model.job import Job
from trainmaster.model.job_state import LIVE_STATES

PROGRAM = Path(__file__).with_name("reality_job.py")
PATIENCE_S = 300.0
UNENDED = "&".join(f"state={state}" for state in LIVE_STATES)
ENDS = (e.RunSucceeded, e.RunFailed, e.RunStopped)
ORDERS = {a.Launch: "launch", a.Freeze: "freeze", a.Thaw: "thaw", a.Halt: "halt", a.Kill: "kill"}


@dataclass(slots=True)
class Attempt:
    """One run, by the daemon's clock, its supervisor's and its program's; ms since 1970."""

    number: int
    orders: list[tuple[str, int]] = field(default_factory=list)
    """(order, when the daemon decided it)."""
    facts: list[tuple[str, int]] = field(default_factory=list)
    """(started, frozen, resumed, gone, ended; when the daemon took it in)."""
    journal: list[tuple[str, int]] = field(default_factory=list)
    marks: dict[str, list[tuple[int, int]]] = field(default_factory=dict)
    """What its ranks noted: (when, at which step)."""


@dataclass(slots=True)
class LiveJobRecord:
    """All that happened to one job."""

    planned: PlannedJob
    job: Job
    """As the daemon took it."""
    attempts: dict[int, Attempt] = field(default_factory=dict)
    start_ms: int | None = None
    finish_ms: int | None = None
    has_succeeded: bool = False
    preemptions: int = 0

    @property
    def jct_ms(self) -> int:
        assert self.finish_ms is not None
        return self.finish_ms - self.job.submit_ms


@dataclass(frozen=True, slots=True)
class LiveRun:
    """A workload under one policy, as it really went."""

    policy: PolicySetup
    stories: tuple[LiveJobRecord, ...]
    log: tuple[str, ...]
    """The event log, as `trainmaster record --format events` writes it."""
    trace: str
    """The history, as `trainmaster record` writes it."""
    load: tuple[float, ...]
    """The machine's load average, before and after."""
    cpu_part: float
    """Fraction of the machine's processors in use, by any process."""


def run_live(folder: Path, jobs: Sequence[PlannedJob], policy: PolicySetup) -> LiveRun:
    """Submit each job at its time, wait for all, and collect the records."""
    options = [part for key, value in policy.options for part in ("--set", f"{key}={value}")]
    before, idle_before = os.getloadavg()[0], _processor_s()
    with live(folder, "--slots", SLOTS, "--policy", policy.name, *options) as daemon:
        ids = _submitted(daemon, jobs)
        until(lambda: _all_ended(daemon, len(jobs)), "all jobs to end", PATIENCE_S)
        log = tuple(_download(daemon, "/api/v1/record/events").splitlines())
        trace = _download(daemon, "/api/v1/record/trace")
    after, idle_after = os.getloadavg()[0], _processor_s()
    used, total = (y - x for x, y in zip(idle_before, idle_after, strict=True))
    stories = _stories(log, dict(zip(ids, jobs, strict=True)), folder)
    return LiveRun(policy, stories, log, trace, (before, after), used / total)


def _submitted(daemon: LiveDaemon, jobs: Sequence[PlannedJob]) -> list[str]:
    ids, begin = [], time.monotonic() + 0.5
    for job in jobs:
        time.sleep(max(0.0, begin + job.at_s - time.monotonic()))
        ids.append(
            daemon.submit(
                name=job.name,
                command=[sys.executable, "-S", str(PROGRAM), str(job.steps), str(STEP_MS)],
                workdir=str(daemon.folder),
                gpus=job.gpus,
                stays_in_memory=job.stays_in_memory,
            )
        )
    return ids


def _all_ended(daemon: LiveDaemon, count: int) -> bool:
    time.sleep(0.5)
    found = daemon.call("GET", f"/api/v1/jobs?limit=1&{UNENDED}")
    return not found["jobs"] and count > 0


def _download(daemon: LiveDaemon, path: str) -> str:
    with daemon.open(path) as answer:
        return str(answer.read().decode())


def _processor_s() -> tuple[float, float]:
    """(used, in all) of all processors since the machine started, in ticks."""
    numbers = [int(word) for word in Path("/proc/stat").read_text().splitlines()[0].split()[1:9]]
    return float(sum(numbers) - numbers[3] - numbers[4]), float(sum(numbers))


# -- reading -------------------------------------------------------------------------------------------


def steps_of(log: Sequence[str]) -> Iterator[tuple[int, tuple[Any, ...], tuple[Any, ...]]]:
    """(now, events, orders) of every step of an event log."""
    for line in log:
        said = json.loads(line)
        if "events" in said:
            events, orders = codec.decode(said["events"]), codec.decode(said["orders"])
            assert isinstance(events, tuple)
            assert isinstance(orders, tuple)
            yield said["now_ms"], events, orders


def _stories(
    log: Sequence[str], planned: dict[str, PlannedJob], folder: Path
) -> tuple[LiveJobRecord, ...]:
    found: dict[str, LiveJobRecord] = {}
    for now, events, orders in steps_of(log):
        for event in events:
            if isinstance(event, e.JobSubmitted):
                found[event.job.id] = LiveJobRecord(planned[event.job.id], event.job)
            else:
                _note_fact(found, event, now)
        for order in orders:
            story = found[order.run.job]
            attempt = story.attempts.setdefault(order.run.attempt, Attempt(order.run.attempt))
            lies_frozen = attempt.orders[-1:] and attempt.orders[-1][0] == "freeze"
            attempt.orders.append((ORDERS[type(order)], now))
            is_leaving = isinstance(order, a.Freeze | a.Halt)
            story.preemptions += is_leaving and not lies_frozen
    for id, story in found.items():
        for number, attempt in story.attempts.items():
            _read_folder(folder / "runs" / id / str(number), attempt)
    return tuple(found.values())


def _note_fact(found: dict[str, LiveJobRecord], event: object, now: int) -> None:
    run = getattr(event, "run", None)
    if run is None:
        return
    story = found[run.job]
    attempt = story.attempts.setdefault(run.attempt, Attempt(run.attempt))
    if isinstance(event, e.RunStarted):
        attempt.facts.append(("started", now))
        if story.start_ms is None:
            story.start_ms = now
    elif isinstance(event, e.RunSuspended):
        attempt.facts.append(("frozen" if event.frozen else "gone", now))
    elif isinstance(event, e.RunResumed):
        attempt.facts.append(("resumed", now))
    elif isinstance(event, ENDS):
        attempt.facts.append(("ended", now))
        story.finish_ms, story.has_succeeded = now, isinstance(event, e.RunSucceeded)


def _read_folder(folder: Path, attempt: Attempt) -> None:
    """The records of its supervisor and its ranks."""
    journal = folder / "journal.jsonl"
    if journal.exists():
        entries = map(json.loads, journal.read_text().splitlines())
        attempt.journal = [(entry["what"], entry["at_ms"]) for entry in entries]
    for file in sorted(folder.glob("rank-*.log*")):
        for line in file.read_text().splitlines():
            if line.startswith("{"):
                said = json.loads(line)
                attempt.marks.setdefault(said["what"], []).append((said["at_ms"], said["step"]))
