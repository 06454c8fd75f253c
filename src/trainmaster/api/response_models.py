"""What answers look like, for the OpenAPI document; the answers themselves are plain dicts (rows.py)."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field


class Shape(BaseModel):
    model_config = ConfigDict(extra="forbid")


class ErrorBody(Shape):
    code: str = Field(description="A word that does not change.", examples=["not_found"])
    sentence: str = Field(
        description="What is wrong and what to do.", examples=["There is no job 99."]
    )


class ErrorAnswer(Shape):
    """Every error looks like this."""

    error: ErrorBody


class ReasonShape(Shape):
    code: str = Field(description="One of a closed set.", examples=["NotEnoughFree", "Held"])
    sentence: str = Field(
        examples=["It needs 8 GPUs and 5 are free; jobs 3 and 4 hold the others."]
    )


class ProgressShape(Shape):
    step: int
    total_steps: int | None
    loss: float | None
    samples_per_s: float | None
    at_s: float


class JobRowShape(Shape):
    """A job as lists show it. Times are Unix seconds; absent is null."""

    id: str = Field(examples=["12", "12_3"])
    name: str
    user: str
    queue: str
    state: str = Field(examples=["pending", "running", "suspended", "succeeded"])
    reason: ReasonShape | None = Field(description="Why it waits, where it does.")
    gpus: float = Field(description="GPUs that it asks for.", examples=[8, 0.5])
    nodes: list[str]
    devices: list[str] = Field(description="What it holds now.", examples=[["n0:0", "n0:1"]])
    submit_s: float
    start_s: float | None = Field(description="Its first start.")
    finish_s: float | None
    queue_s: float = Field(description="How long it waited for its first start.")
    run_s: float = Field(description="How long it has run, all attempts together.")
    gpu_s: float = Field(description="GPU-seconds that it has held.")
    priority: int
    attempt: int
    restarts: int
    preemptions: int
    exit_code: int | None
    ended_because: str | None = Field(
        description="Why it failed or was cancelled, where that is known.",
        examples=["It has run for its max_runtime of 2 h."],
    )
    array: str | None = Field(description="The array that it is an element of.")
    array_index: int | None
    progress: ProgressShape | None


class JobSheetShape(JobRowShape):
    """A job with all that is known of it."""

    failures: int
    retries: int
    migrations: int
    pids: list[int]
    saved_at_s: float | None = Field(description="When a checkpoint of it last became durable.")
    remarks: list[str] = Field(
        description="What cannot be done for it, and what would have to change."
    )
    spec: dict[str, Any] = Field(description="The job file as submitted.")
    record: dict[str, Any] = Field(description="What happened to it so far.")


class JobList(Shape):
    jobs: list[JobRowShape]
    next: str | None = Field(description="Give it as `before` for the next page; null on the last.")
    counts: dict[str, int] = Field(description="How many jobs are in each state, over all.")


class AcceptedJob(Shape):
    id: str = Field(description="The job, or the array.")
    name: str
    ids: list[str] = Field(description="Its elements, where it is an array; else the job alone.")


class AcceptedJobs(Shape):
    jobs: list[AcceptedJob]


class ForecastShape(Shape):
    start_s: float | None
    basis: str = Field(description="What was assumed.")
    sentence: str


class CheckedJob(Shape):
    job: JobSheetShape
    forecast: ForecastShape


class CheckedJobs(Shape):
    """What a dry run says; nothing was submitted."""

    jobs: list[CheckedJob]


class NumbersShape(Shape):
    need: float
    free: float
    largest_block: float
    until_s: float | None


class HolderShape(Shape):
    id: str
    name: str
    user: str
    queue: str
    state: str
    gpus: float
    devices: list[str]


class Explanation(Shape):
    """Why a job waits; for one that does not, `code` is null and the sentence says what it does."""

    id: str
    name: str
    state: str
    code: str | None
    sentence: str
    numbers: NumbersShape | None = Field(description="In GPUs.")
    held_by: list[HolderShape] = Field(description="The jobs in its way.")
    forecast: ForecastShape | None = Field(
        description="By simulating the queue; null once started."
    )
    remarks: list[str]


class ToldShape(Shape):
    at_s: float
    step: int
    what: str
    sentence: str
    detail: dict[str, Any]


class Story(Shape):
    story: list[ToldShape]


class ReportShape(Shape):
    at_s: float
    step: int
    loss: float | None
    samples_per_s: float | None


class ProgressList(Shape):
    progress: list[ReportShape] = Field(description="Evenly thinned where there are very many.")


class Surroundings(Shape):
    workdir: str
    environment: dict[str, str]


class DeviceShape(Shape):
    name: str
    jobs: list[str]


class NodeShape(Shape):
    name: str
    type: str
    state: str = Field(examples=["up", "draining", "away", "set aside"])
    devices: list[DeviceShape]
    frozen: list[str] = Field(description="Jobs that are suspended in memory here.")
    cpus: float
    memory_bytes: int
    remarks: list[str]


class NodeList(Shape):
    nodes: list[NodeShape]


class QueueShape(Shape):
    name: str
    parent: str | None
    weight: int
    guaranteed_gpus: float
    maximum_gpus: float | None
    is_defined: bool = Field(description="False for a name that only jobs used.")
    running: int
    waiting: int
    held: int
    gpus: float = Field(description="GPUs that its jobs hold now.")


class QueueList(Shape):
    queues: list[QueueShape]


class PolicyShape(Shape):
    name: str
    options: dict[str, Any]
    since_s: float
    trouble: str | None = Field(description="What it raised last, if anything.")


class OptionShape(Shape):
    name: str
    default: Any
    allowed: str
    help: str


class PolicyCard(Shape):
    name: str
    summary: str
    needs_oracle: bool = Field(description="Knows true run times: for the simulator only.")
    options: list[OptionShape]


class PolicyList(Shape):
    policies: list[PolicyCard]


class HealthShape(Shape):
    role: str = Field(examples=["active", "standby"])
    trouble: str | None
    version: str


class SentEvent(BaseModel):
    """One server-sent event; `data` is JSON in a text."""

    event: str
    data: str = Field(json_schema_extra={"contentMediaType": "application/json"})
    id: str | None = Field(None, description="Give it as Last-Event-ID to go on after it.")
