"""What the store keeps, as values; texts named `…_json` are JSON that the store does not read."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class StepRow:
    """One step of the controller: the facts that went in and the orders that came out."""

    seq: int
    """1, 2, 3, …; never reused."""
    now_ms: int
    events_json: str
    orders_json: str


@dataclass(frozen=True, slots=True)
class StoredJob:
    """One job as users look for it, live or ended."""

    id: str
    name: str
    user: str
    queue: str
    state: str
    """A `JobState`."""
    submit_ms: int
    start_ms: int | None
    finish_ms: int | None
    gpus: int
    """Thousandths of a GPU that it asks for."""
    exit_code: int | None
    array: str | None
    """The array that it is an element of."""
    array_index: int | None
    spec_json: str
    """The job file as submitted, and what the manager made of it."""
    record_json: str
    """What happened to it: attempts, preemptions, attained service, the last failure."""
    program: str | None = None
    """Which program it runs, with any arguments: None: not known, as an earlier version wrote it."""


@dataclass(frozen=True, slots=True)
class StoryRow:
    """One sentence of a job's story."""

    job: str
    at_ms: int
    step: int
    """The step that it belongs to."""
    what: str
    """A participle: submitted, started, suspended, …"""
    detail_json: str


@dataclass(frozen=True, slots=True)
class ChargeRow:
    """GPU time that a job held without a change: where it ran, in which queue, at which price."""

    job: str
    user: str
    queue: str
    gpu_type: str
    from_ms: int
    to_ms: int
    gpu_ms: int
    """Thousandths of a GPU x ms."""
    lost_gpu_ms: int
    """GPU time of work that was lost by the end of it."""
    price: int | None
    """Millionths of the currency for a GPU-hour; None: no price was set."""
    currency: str
    lost_to: str = ""
    """To what work was lost: `preemption`, `resize`, `suspension` by a person, or the reason of a failure.
    Empty: none was, or an earlier version has not recorded it."""
    attempt: int | None = None
    devices: str | None = None
    """Where it ran, a line for each node after an empty one: `n0:0,1`. None: an earlier version wrote the
    row, or it takes GPU time back."""
    ended: str | None = None
    """What ended it: suspended, migrated, resized, failed, lost, stopped, pre-run, or the state in which the
    job ended. None: the job went on, in another queue or at another price."""


@dataclass(frozen=True, slots=True)
class FailedRunRow:
    """The entry of a run that failed or was lost, in the story of a job, and whose job that is."""

    job: str
    user: str
    name: str
    detail_json: str
    at_ms: int = 0


@dataclass(frozen=True, slots=True)
class SpanRow:
    """A stretch of GPU time as a timeline shows it, with the name of its job."""

    job: str
    user: str
    name: str
    attempt: int | None
    devices: str
    """As in `ChargeRow`."""
    from_ms: int
    to_ms: int
    ended: str | None


@dataclass(frozen=True, slots=True)
class StoredProgress:
    """One progress report of a job."""

    job: str
    at_ms: int
    step: int
    loss: float | None
    samples_per_s: float | None


DAY_MS = 24 * 3600 * 1000
KEYS_LIVE_MS = 7 * DAY_MS
"""How long an answer to an idempotency key is remembered, counted back from the newest step."""


@dataclass(frozen=True, slots=True)
class KeyRow:
    """An idempotency key, and what was answered to it."""

    key: str
    at_ms: int
    request_hash: str
    answer_json: str


@dataclass(frozen=True, slots=True)
class TokenRow:
    """A token: who has it may ask as this user, with this role."""

    id: str
    digest: str
    """SHA-256 of the token, in hex: the token itself is 256 random bits, and is not stored."""
    user: str
    role: str
    label: str
    """What it is for, in words of whoever made it."""
    created_ms: int
    expires_ms: int | None
    revoked_ms: int | None
    used_ms: int | None
    """When it was last used, to some minutes."""


@dataclass(frozen=True, slots=True)
class UserRow:
    """The role of a Unix user of this machine."""

    id: str
    """The user's name."""
    role: str
    changed_ms: int


@dataclass(frozen=True, slots=True)
class SnapshotRow:
    """The controller's state after a step."""

    seq: int
    """The last step that is in it; 0 = before the first."""
    at_ms: int
    body_json: str


@dataclass(frozen=True, slots=True)
class Batch:
    """All that one step changes: stored together or not at all."""

    step: StepRow
    jobs: tuple[StoredJob, ...] = ()
    """New or changed ones."""
    stories: tuple[StoryRow, ...] = ()
    progress: tuple[StoredProgress, ...] = ()
    charges: tuple[ChargeRow, ...] = ()
    keys: tuple[KeyRow, ...] = ()


@dataclass(frozen=True, slots=True)
class JobFilter:
    """Which jobs to list: all that match, newest first."""

    states: frozenset[str] = frozenset()
    """Empty = any."""
    user: str | None = None
    queue: str | None = None
    array: str | None = None
    text: str | None = None
    """Part of the name or of the id."""
    since_ms: int | None = None
    """Submitted at this time or later."""
    before: str | None = None
    """Continue after this job id of an earlier page; nothing follows an unknown one."""
    limit: int = 100
    is_folded: bool = False
    """Of each array only its last job that matches."""
    is_brief: bool = False
    """Without the job files: `spec_json` is empty. For long lists."""
