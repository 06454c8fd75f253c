"""What the daemon keeps of a live job beside the controller's record, and how that is stored."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any

from trainmaster.core.lifecycle import ENDED
from trainmaster.core.state import JobRecord
from trainmaster.daemon.service_api import Array, Dependency, Progress, Submission
from trainmaster.model import codec
from trainmaster.model.codec import stored_as
from trainmaster.model.job import Job
from trainmaster.model.launch_spec import Recipe
from trainmaster.model.placement import Placement
from trainmaster.model.topology import Topology
from trainmaster.store.rows import JobRow


class Hold(Enum):
    """Why a job is not to be started."""

    OWNER = "owner"
    DEPENDENCY = "dependency"
    ARRAY = "array"


@stored_as("daemon.Kept")
@dataclass(frozen=True, slots=True)
class StoredSubmission:
    """A submission as it is stored: what every restart of the daemon needs of it."""

    recipe: Recipe
    job: Job
    depends_on: tuple[Dependency, ...] = ()
    array: Array | None = None


@dataclass(slots=True)
class LiveJob:
    """One job that has not ended."""

    job: Job
    name: str
    stored: StoredSubmission
    spec: Mapping[str, object]
    """The job file as submitted."""
    array: str | None = None
    array_index: int | None = None
    holds: set[Hold] = field(default_factory=set)
    record: JobRecord | None = None
    """The controller's; None until its submission has been reduced."""
    seen: int = 0
    """Number of the last report of the present attempt that was taken in."""
    attempt: int = 0
    """The attempt that `seen` counts."""
    pids: tuple[int, ...] = ()
    progress: Progress | None = None
    samples_per_s: float | None = None
    """Its speed by its own word at its nominal size, the best so far."""
    saved_at_ms: int | None = None
    has_hello: bool = False
    """Whether its program speaks through the SDK."""
    run_ms: int = 0
    """How long it has run, up to `since_ms`."""
    since_ms: int | None = None
    before_ms: int = 0
    """How long it had run before its present attempt."""
    failed_ms: tuple[int, ...] = ()
    """How long each of its failed attempts ran."""
    ended_ms: int | None = None
    """When its last run was seen to end."""
    finish_ms: int | None = None
    exit_code: int | None = None
    failure: dict[str, object] = field(default_factory=dict)
    """What was last seen to go wrong: code, rank, why, tail."""
    _spec_json: str = ""
    """A cache: a job's row is written many times, its file never changes."""

    @property
    def id(self) -> str:
        return self.job.id

    @property
    def recipe(self) -> Recipe:
        return self.stored.recipe

    @property
    def has_ended(self) -> bool:
        return self.record is not None and self.record.phase in ENDED

    def ran_ms(self, now: int) -> int:
        return self.run_ms + (0 if self.since_ms is None else now - self.since_ms)

    def began(self, at_ms: int) -> None:
        """Its processes run from then on."""
        if self.since_ms is None:
            self.since_ms = at_ms

    def paused(self, at_ms: int) -> None:
        """They stand still, or are gone, since then."""
        if self.since_ms is not None:
            self.run_ms += max(0, at_ms - self.since_ms)
            self.since_ms = None

    def recipe_now(self, now: int) -> Recipe:
        """What its next run is started from: it has only so much time left."""
        most = self.recipe.max_runtime_ms
        if most is None:
            return self.recipe
        return replace(self.recipe, max_runtime_ms=max(1, most - self.ran_ms(now)))

    def respecify(self, said: Mapping[str, object]) -> None:
        """Its file with what was set since."""
        self.spec = {**self.spec, **said}
        self._spec_json = ""

    def with_runtime(self, max_runtime_ms: int) -> None:
        self.stored = replace(
            self.stored, recipe=replace(self.recipe, max_runtime_ms=max_runtime_ms)
        )
        self._spec_json = ""

    # -- rows ----------------------------------------------------------------------------------------

    def row(self, now: int) -> JobRow:
        record = self.record
        if not self._spec_json:
            spec = {"spec": dict(self.spec), "kept": codec.encode(self.stored)}
            self._spec_json = json.dumps(spec, separators=(",", ":"))
        return JobRow(
            id=self.id,
            name=self.name,
            user=self.job.user,
            queue=self.job.queue,
            state="pending" if record is None else record.phase.name.lower(),
            submit_ms=self.job.submit_ms,
            start_ms=None if record is None else record.first_start_ms,
            finish_ms=self.finish_ms,
            gpus=self.job.demand.nominal.total_share,
            exit_code=self.exit_code,
            array=self.array,
            array_index=self.array_index,
            spec_json=self._spec_json,
            record_json=json.dumps(self._happened(now), separators=(",", ":")),
        )

    def _happened(self, now: int) -> dict[str, object]:
        record = self.record
        happened: dict[str, object] = {
            "priority": self.job.priority,
            "retries": self.job.retries,
            "holds": sorted(hold.value for hold in self.holds),
            "seen": self.seen,
            "attempt": self.attempt,
            "pids": list(self.pids),
            "run_ms": self.run_ms if self.finish_ms is None else self.ran_ms(now),
            "since_ms": self.since_ms,
            "exit_code": self.exit_code,
            "before_ms": self.before_ms,
            "failed_ms": list(self.failed_ms),
            "samples_per_s": self.samples_per_s,
            "saved_at_ms": self.saved_at_ms,
            "has_hello": self.has_hello,
            "failure": self.failure,
            "progress": None if self.progress is None else codec.encode(self.progress),
        }
        if record is not None:
            happened |= {
                "failures": record.failures,
                "preemptions": record.preemptions,
                "migrations": record.migrations,
                "gpu_ms": record.attained_at(now),
                "attempts": record.attempt,
            }
        return happened


def from_row(row: JobRow, record: JobRecord) -> LiveJob:
    """A live job as the store has it, tied to the controller's record."""
    spec = json.loads(row.spec_json)
    kept = codec.decode(spec["kept"])
    assert isinstance(kept, StoredSubmission)
    happened: dict[str, Any] = json.loads(row.record_json)
    progress = happened["progress"]
    live = LiveJob(
        job=record.job,
        name=row.name,
        stored=kept,
        spec=spec["spec"],
        array=row.array,
        array_index=row.array_index,
        holds={Hold(each) for each in happened["holds"]},
        record=record,
        seen=happened["seen"],
        attempt=happened["attempt"],
        pids=tuple(happened["pids"]),
        samples_per_s=happened["samples_per_s"],
        saved_at_ms=happened["saved_at_ms"],
        has_hello=happened["has_hello"],
        run_ms=happened["run_ms"],
        since_ms=happened["since_ms"],
        exit_code=happened["exit_code"],
        before_ms=happened["before_ms"],
        failed_ms=tuple(happened["failed_ms"]),
        failure=happened["failure"],
    )
    if progress is not None:
        decoded = codec.decode(progress)
        assert isinstance(decoded, Progress)
        live.progress = decoded
    return live


def named_devices(placement: Placement | None, topology: Topology) -> tuple[str, ...]:
    """What a placement is made of, as `node:number`."""
    if placement is None:
        return ()
    nodes = topology.nodes
    return tuple(
        f"{nodes[piece.node].name}:{piece.gpu - nodes[piece.node].first_gpu}"
        for piece in placement.slices
    )


def submitted_job(asked: Submission, id: str, now: int) -> Job:
    """The controller's value of a submission."""
    return Job(
        id=id,
        submit_ms=now,
        demand=asked.demand,
        queue=asked.queue,
        user=asked.user,
        app=asked.app,
        model=asked.model,
        role=asked.role,
        priority=asked.priority,
        retries=asked.retries,
        grace_ms=asked.grace_ms,
        deadline_ms=None if asked.deadline_ms is None else now + asked.deadline_ms,
        iterations=asked.iterations,
    )
