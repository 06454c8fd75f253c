"""What users see: one definition of each row, for the OpenAPI document, the API's answers and the
command line.

Plain dataclasses of the standard library, so that `trainmaster ps` starts quickly; FastAPI makes the schema
from them, with the texts below the fields as descriptions. Times are Unix seconds; absent is null.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, ClassVar, TypeVar, dataclass_transform

from trainmaster.model.job_state import ENDED_STATES, JobState, Transition
from trainmaster.model.stop_reasons import Suspender
from trainmaster.model.units import WHOLE
from trainmaster.text.formatting import as_sentence

BESIDE = {
    "Dependency": "dependency",
    "ArrayLimit": "array limit",
    "Held": "held",
    "NeverFits": "can never run",
    "RetryDelay": "retry delay",
}
"""Reasons that are said beside the state, because no free GPU would help."""
T = TypeVar("T")
TIMED_OUT = 124
"""Exit status for a job that reached its time limit."""


def amount(thousandths: int) -> float:
    """GPUs: a whole number where it is one."""
    whole, rest = divmod(thousandths, WHOLE)
    return whole if rest == 0 else thousandths / WHOLE


def plain(value: object) -> Any:
    """Anything as JSON has it: any other type becomes a text."""
    if value is None or isinstance(value, str | bool | int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, Mapping):
        return {str(key): plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    return str(value)


@dataclass_transform(frozen_default=True)
class ResponseModel:
    """Base of all rows: each subclass becomes a dataclass, of which pydantic makes a schema.

    They are frozen for the type checker only: at run time that makes rows three times as slow to make.
    """

    __pydantic_config__: ClassVar[Mapping[str, object]] = {
        "extra": "forbid",
        "use_attribute_docstrings": True,
    }

    def __init_subclass__(cls) -> None:
        dataclass(repr=False)(cls)


class ErrorBody(ResponseModel):
    code: str
    """A word that does not change, such as `not_found`."""
    sentence: str
    """What is wrong and what to do."""


class ErrorAnswer(ResponseModel):
    """Every error looks like this."""

    error: ErrorBody


class WaitReason(ResponseModel):
    code: str
    """One of a closed set, such as `NotEnoughFree`, `Dependency` or `SuspendedByUser`."""
    sentence: str
    """For people: `It needs 8 GPUs and 5 are free; jobs 3 and 4 hold the others.`"""
    held_by: tuple[str, ...] = ()
    """Ids of the jobs in its way, 20 at most."""
    need: float = 0
    """GPUs that it needs."""
    free: float = 0
    until_s: float | None = None
    """Until when this holds at most, where known."""


class JobEnd(ResponseModel):
    """Why a job ended without success; what does not apply is null."""

    code: str
    """ExitCode, Signal, NotStarted, Lost, TimeLimit, Dependency or Cancelled."""
    sentence: str
    """For people; empty where the state says all."""
    exit_code: int | None = None
    signal: str | None = None
    rank: int | None = None
    """The rank that failed first."""
    limit_s: float | None = None
    """The time limit that it reached."""
    times: int | None = None
    """How often it was lost."""
    job: str | None = None
    """The job that it depended on."""
    job_state: JobState | None = None
    """How that one ended."""
    by: str | None = None
    """Who cancelled it, where known."""


class DeadlineRow(ResponseModel):
    """What was last said about a job's deadline."""

    what: str
    """accepted, declined, slipped or recovered."""
    deadline_s: float
    finish_s: float | None
    """The latest predicted end."""
    feasible_s: float | None
    """The earliest deadline that could have been accepted."""
    sentence: str

    @property
    def is_at_risk(self) -> bool:
        return self.what in ("declined", "slipped")


class ProgressReport(ResponseModel):
    at_s: float
    step: int
    loss: float | None
    samples_per_s: float | None


class ProgressRow(ProgressReport):
    total_steps: int | None
    steps_per_s: float | None


def _from_json(kind: type[T], answer: dict[str, Any]) -> T:
    """An object of an answer, which it keeps; None where an older manager does not send a field.

    Its fields are not checked and not copied: lists have thousands of rows.
    """
    names = _names(kind)
    made = object.__new__(kind)
    made.__dict__ = (
        answer if answer.keys() == names.keys() else {name: answer.get(name) for name in names}
    )
    return made


def _names(kind: type[Any]) -> dict[str, None]:
    """Remembered: lists have thousands of rows."""
    if kind not in _NAMES:
        _NAMES[kind] = {each.name: None for each in fields(kind)}
    return _NAMES[kind]


_NAMES: dict[type[Any], dict[str, None]] = {}


class Holder(ResponseModel):
    """A job that blocks another."""

    id: str
    """`12`; `12_3` for an element of an array."""
    name: str
    user: str
    queue: str
    state: JobState
    gpus: float
    """GPUs that it asks for."""
    devices: list[str]
    """What it holds now, as `node:number`."""


class JobRow(Holder):
    """A job as lists show it."""

    transition: Transition | None
    """What is happening to it right now, beside its state."""
    reason: WaitReason | None
    """Why it waits, where it does."""
    suspended_by: Suspender | None
    """Who keeps a suspended job off its devices: a user, the policy, or its own idleness."""
    nodes: list[str]
    submit_s: float
    start_s: float | None
    """Its first start."""
    finish_s: float | None
    queue_s: float
    """How long it waited for its first start, in seconds."""
    waiting_s: float | None
    """How long it has been waiting now, since its submission or its last run; null while it does not."""
    run_s: float
    """How long it has run, all attempts together, in seconds."""
    gpu_s: float
    """GPU-seconds that it has held."""
    priority: int
    attempt: int
    restarts: int
    preemptions: int
    lost_s: float
    """Work that it did and lost because it was ended, in seconds at nominal speed."""
    exit_code: int | None
    end_reason: JobEnd | None
    """Why it failed, timed out or was cancelled."""
    deadline: DeadlineRow | None
    array: str | None
    """The array that it is an element of."""
    array_index: int | None
    progress: ProgressRow | None

    @classmethod
    def from_json(cls, answer: dict[str, Any]) -> JobRow:
        """A row of an answer, which it takes over; what a newer manager adds is ignored."""
        row = _from_json(JobRow, answer)
        values = row.__dict__
        for name, kind in PARTS.items():
            if values[name] is not None:
                values[name] = _from_json(kind, values[name])
        return row

    @property
    def has_ended(self) -> bool:
        return self.state in ENDED_STATES

    @property
    def state_words(self) -> str:
        """Its state with what is to be said beside it: `pending (dependency)`, `suspended (user)`."""
        beside: str | None = self.transition or self.suspended_by
        if beside is None and self.reason is not None:
            beside = BESIDE.get(self.reason.code)
        label = self.state.replace("_", " ")
        return f"{label} ({beside})" if beside else label

    @property
    def page(self) -> str:
        """The job that its link leads to."""
        return self.id

    @property
    def size(self) -> str:
        """GPUs that it asks for, for a column."""
        return f"{self.gpus:g}"

    @property
    def has_failed(self) -> bool:
        return self.state in (JobState.FAILED, JobState.TIMED_OUT)

    @property
    def since_s(self) -> float:
        """When it ended, else when it started, else when it was submitted."""
        return self.finish_s or self.start_s or self.submit_s

    @property
    def where_or_why(self) -> str:
        """Where it runs, why it waits, how and why it did not succeed."""
        if self.state == JobState.FAILED and self.exit_code is not None:
            return f"exit code {self.exit_code}" + (
                f": {self.ended_because}" * bool(self.ended_because)
            )
        said = self.why or self.ended_because or ("" if self.has_ended else ", ".join(self.nodes))
        if self.deadline is not None and self.deadline.is_at_risk and not self.has_ended:
            said = as_sentence(said) if said else ""
            return f"{said} {self.deadline.sentence}".strip()
        return said

    @property
    def why(self) -> str:
        """Why it waits, as a sentence; empty where it does not."""
        return "" if self.reason is None else self.reason.sentence

    @property
    def ended_because(self) -> str:
        """Why it ended without success, as a sentence; empty where that is not known."""
        return "" if self.end_reason is None else self.end_reason.sentence

    @property
    def exit_status(self) -> int:
        """What a command that waited for it returns: its own code, 124 for one that timed out, as
        `timeout` does, and never 0 unless it succeeded."""
        if self.state == JobState.TIMED_OUT:
            return TIMED_OUT
        return 0 if self.state == JobState.SUCCEEDED else self.exit_code or 1


PARTS: Mapping[str, type[Any]] = {
    "reason": WaitReason,
    "end_reason": JobEnd,
    "deadline": DeadlineRow,
    "progress": ProgressRow,
}
"""Fields of a job that are objects."""


class ArraySummary(ResponseModel):
    """The jobs of an array."""

    jobs: int
    states: dict[str, int]
    """How many are in each state."""
    unsuccessful: list[str]
    """Ids of those that ended without success, 20 at most."""
    sentence: str
    """For people: `100 jobs: 97 succeeded, 3 failed (60_[3,7,9]).`"""


class JobDetails(JobRow):
    """A job with all that is known of it."""

    failures: int
    retries: int
    migrations: int
    pids: list[int]
    ran_in: str | None
    """The folder that its processes run in: where it was submitted from, or a copy of that."""
    saved_at_s: float | None
    """When a checkpoint of it last became durable."""
    remarks: list[str]
    """What is not possible for this job, and what would have to change."""
    elements: ArraySummary | None
    """Its jobs, where it is an array."""
    last_lines: list[str]
    """The end of its output, where it ended without success."""
    spec: dict[str, Any]
    """The job file as submitted."""
    """What happened to it so far."""


class JobList(ResponseModel):
    jobs: list[JobRow]
    next: str | None
    """Give it as `before` for the next page; null on the last."""
    counts: dict[str, int]
    """How many jobs are in each state, in total."""
    notes: list[str]
    """What does not work as it should: the policy cannot be used, the store cannot be written."""


class OutputFile(ResponseModel):
    path: str
    """In the folder."""
    size: int
    at_s: float
    """When it was last written to."""


class Outputs(ResponseModel):
    """What a job wrote in its copy of the code: new and changed files."""

    folder: str
    files: list[OutputFile]


class AcceptedJob(ResponseModel):
    id: str
    """The job, or the array."""
    name: str
    ids: list[str]
    """Its elements, where it is an array; else the job alone."""
    remarks: tuple[str, ...] = ()
    """What its user should know, such as a deadline that was declined."""


class AcceptedJobs(ResponseModel):
    jobs: list[AcceptedJob]


class ForecastRow(ResponseModel):
    start_s: float | None
    basis: str
    """What was assumed."""
    sentence: str


class CheckedJob(ResponseModel):
    job: JobDetails
    forecast: ForecastRow


class CheckedJobs(ResponseModel):
    """What a dry run says; nothing was submitted."""

    jobs: list[CheckedJob]


class WaitNumbers(ResponseModel):
    need: float
    free: float
    largest_block: float
    until_s: float | None


class Explanation(ResponseModel):
    """Why a job waits; for one that does not, `code` is null and the sentence says what it does."""

    id: str
    name: str
    state: JobState
    suspended_by: Suspender | None
    array: str | None
    """The array that was asked about: this is the first of its jobs that waits."""
    code: str | None
    sentence: str
    numbers: WaitNumbers | None
    """In GPUs."""
    held_by: list[Holder]
    """The jobs that block it."""
    forecast: ForecastRow | None
    """By simulating the queue; null once started."""
    remarks: list[str]
    last_lines: tuple[str, ...] = ()
    """The end of its output, where it ended without success."""


class StoryEntry(ResponseModel):
    at_s: float
    step: int
    what: str
    sentence: str
    detail: dict[str, Any]


class Story(ResponseModel):
    story: list[StoryEntry]


class ProgressList(ResponseModel):
    progress: list[ProgressReport]
    """Evenly thinned where there are very many."""


class RunEnvironment(ResponseModel):
    workdir: str
    environment: dict[str, str]


class DeviceRow(ResponseModel):
    name: str
    jobs: list[str]


class NodeRow(ResponseModel):
    name: str
    type: str
    state: str
    """up, draining, away or set aside."""
    devices: list[DeviceRow]
    frozen: list[str]
    """Jobs that are suspended in memory here."""
    cpus: float
    memory_bytes: int
    remarks: list[str]


class NodeList(ResponseModel):
    nodes: list[NodeRow]


class QueueRow(ResponseModel):
    name: str
    parent: str | None
    weight: int
    guaranteed_gpus: float
    maximum_gpus: float | None
    allow_unpreemptible: bool
    """Whether its jobs may be `preemptible: false`."""
    is_defined: bool
    """False for a name that only jobs used."""
    running: int
    pending: int
    suspended: int
    gpus: float
    """GPUs that its jobs hold now."""


class QueueList(ResponseModel):
    queues: list[QueueRow]


class PolicyRow(ResponseModel):
    name: str
    options: dict[str, Any]
    since_s: float
    trouble: str | None
    """What it raised last, if anything."""
    obeys_queues: bool = False
    """Whether weights, guarantees and maxima of queues hold under it."""


class PolicyOption(ResponseModel):
    name: str
    default: Any
    allowed: str
    help: str


class PolicyDoc(ResponseModel):
    name: str
    summary: str
    needs_oracle: bool
    """Knows true run times: for the simulator only."""
    options: list[PolicyOption]


class PolicyList(ResponseModel):
    policies: list[PolicyDoc]


class HealthRow(ResponseModel):
    """Whether a manager works; the numbers are null on a standby."""

    role: str
    """active or standby."""
    state: str
    """ok, degraded (see `notes`) or failing (see `trouble`)."""
    trouble: str | None
    """Why nothing can be changed now."""
    notes: list[str]
    """What does not work as it should although the manager does, and what to do."""
    version: str
    step_age_s: float | None = None
    """Since the last step ended; a manager without anything to do makes none."""
    thread_wait_s: float | None = None
    """How long work waits for a thread now."""
    disk_free_bytes: int | None = None
    open_files: int | None = None
    most_open_files: int | None = None


class UnrecordedCancel(ResponseModel):
    """What was told to end while the database is away."""

    jobs: list[str]
    sentence: str


class StatusRow(ResponseModel):
    """The manager at a glance; what only the active one knows is null on a standby."""

    role: str
    """active or standby."""
    trouble: str | None
    """Why nothing can be changed now."""
    notes: list[str]
    """What does not work as it should although the manager does, and what to do."""
    version: str
    pid: int
    folder: str
    """Its data folder."""
    database: str
    """Without a password."""
    policy: str | None
    devices: int | None
    used: int | None
    """Devices that jobs hold now."""
    device_type: str | None
    jobs: dict[str, int] | None
    """How many jobs are in each state, in total."""


class ChangeRow(ResponseModel):
    """What happened, as the data of a server-sent event."""

    seq: int
    at_s: float
    what: str
    job: str | None
    detail: dict[str, Any]


class SentEvent(ResponseModel):
    """One server-sent event; `data` is JSON in a text."""

    event: str
    data: str
    id: str | None = None
    """Give it as Last-Event-ID to go on after it."""
