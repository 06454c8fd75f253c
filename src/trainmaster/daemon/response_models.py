"""What users see: one definition of each answer, for the OpenAPI document, the API and the command line.

Plain dataclasses; FastAPI makes the schema from them, with the texts below the fields as descriptions. Times
are Unix seconds; absent is null. Rows of jobs are in `job_rows`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from trainmaster.daemon.job_rows import Holder, JobRow, ProgressReport, ResponseModel
from trainmaster.model.job_state import JobState
from trainmaster.model.stop_reasons import Suspender
from trainmaster.model.units import WHOLE


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


class ErrorBody(ResponseModel):
    code: str
    """A word that does not change, such as `not_found`."""
    sentence: str
    """What is wrong and what to do."""


class ErrorAnswer(ResponseModel):
    """Every error looks like this."""

    error: ErrorBody


class ArraySummary(ResponseModel):
    """The jobs of an array."""

    jobs: int
    states: dict[str, int]
    """How many are in each state."""
    unsuccessful: list[str]
    """Ids of those that ended without success, 20 at most."""
    sentence: str
    """For people: `100 jobs: 97 succeeded, 3 failed (60_[3,7,9]).`"""


class FailureRow(ResponseModel):
    """Why a run failed or was lost, as far as its end and its output show it."""

    reason: str
    """Key of the table of reasons (docs/failures.md), such as `cuda-out-of-memory`; `unknown`."""
    title: str
    """The same in a few words."""
    blame: str
    """Whose fault it is: user, platform or unknown."""
    rank: int | None
    """The rank that failed first."""
    exit_code: int | None
    signal: str | None
    path: str | None
    """The input that it could not read."""
    lines: list[str]
    """Lines of its output that show the reason."""
    advice: str
    """What to do about it."""
    retry: str | None = None
    """Whether it is tried again, and why; null for a run that was lost."""


class ProgramProfile(ResponseModel):
    """What is known of a job's program on one device; null: not measured."""

    step_us: int | None
    """Microseconds of a step."""
    batch: int | None
    """Examples in a step."""
    sync_bytes: int | None
    """Bytes of the parameters that it trains."""
    cpu_us: int | None
    """Microseconds of CPU time for a step."""
    activation_bytes: int | None
    """Bytes of GPU memory that a step takes and gives back."""


class MemoryRow(ResponseModel):
    """What a job is expected to need of each of its GPUs, in bytes."""

    low_bytes: int
    expected_bytes: int
    high_bytes: int
    """Where nobody stated `gpu_memory`, so much is reserved once the job may share a GPU."""
    source: str
    """measured (its own run), learned (earlier runs of its program) or static."""
    runs: int
    """Learned: from so many earlier runs; measured: 1 where it is of another run, with the same arguments."""
    same_arguments: bool
    """Learned: whether they had the same arguments."""
    peak_bytes: int | None
    """The most that was read; null where nothing was."""
    reserved_bytes: int | None
    """What is booked for its run now; null where it does not run, or has its GPUs for itself."""


class JobDetails(JobRow):
    """A job with all that is known of it."""

    uuid: str | None
    """Its own for ever, unlike its id, which a manager with another or older database may use again."""
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
    gpu_use: list[GpuUse]
    """What its processes use on GPUs now; empty while it does not run, and on CPU slots."""
    shared_by: str | None
    """How it shares its GPUs with other jobs: `MPS`, `time-slicing`."""
    memory_enforced: str | None
    """How memory of a GPU that it shares is enforced: `8.0 GiB, enforced by MPS`, or `by watching`."""
    memory: MemoryRow | None
    """What it is expected to need of each GPU; null where nothing was measured, and on CPU slots."""
    failure: FailureRow | None
    """Why its last run failed; null once it has succeeded."""
    last_lines: list[str]
    """The end of its output, where it ended without success."""
    profile: ProgramProfile | None
    """What `estimate --speed` predicts from; null while nothing was measured."""
    spec: dict[str, Any]
    """The job file as submitted."""


class JobList(ResponseModel):
    jobs: list[JobRow]
    next: str | None
    """Give it as `before` for the next page; null on the last."""
    counts: dict[str, int]
    """How many jobs are in each state, in total."""
    notes: list[str]
    """What does not work as it should: the policy cannot be used, the store cannot be written."""
    arrays: dict[str, dict[str, int]] | None = None
    """With `fold`: of each array on this page, how many of its jobs are in each state."""


class FailureReasonRow(ResponseModel):
    """What one reason cost; shares are parts of 1."""

    reason: str
    blame: str
    """user, platform or unknown; several with commas between."""
    trials: int
    """Runs that failed."""
    jobs: int
    users: int
    p50_min: float
    p90_min: float
    p95_min: float
    """Run time to failure, in minutes."""
    run_share: float
    """Of the run time to failure of all failed runs."""
    sizes: list[int]
    """Failed runs on at most 1 GPU, on 2-4, on more."""
    gpu_hours: float
    gpu_share: float
    """Of the GPU hours of all failed runs."""


class FailureSourceRow(ResponseModel):
    """A program, user, node, device or input that failed runs have in common."""

    name: str
    trials: int
    jobs: int
    gpu_hours: float
    gpu_share: float
    reasons: list[str]
    """The most expensive ones, 3 at most."""


class JobStatusRow(ResponseModel):
    """Jobs that ended in one way, and the GPU hours that they held."""

    status: str
    jobs: int
    share: float
    gpu_hours: float
    gpu_share: float


class FailureTable(ResponseModel):
    """What failed runs cost: by reason, the most expensive first, and what stands behind them."""

    trials: int
    jobs: int
    gpu_hours: float
    reasons: list[FailureReasonRow]
    programs: list[FailureSourceRow]
    """Names without numbers; of these and the following the 20 most expensive."""
    users: list[FailureSourceRow]
    nodes: list[FailureSourceRow]
    devices: list[FailureSourceRow]
    inputs: list[FailureSourceRow]
    """Paths that could not be read."""
    statuses: list[JobStatusRow]
    """Jobs that have ended."""


class CalibrationRow(ResponseModel):
    """How good forecasts of run time on the same basis were."""

    basis: str
    """steps, profile, loss, runs (same arguments) or program (other arguments)."""
    words: str
    """The same in words."""
    forecasts: int
    within: int
    """How many true ends were within the 80 % interval."""
    median_error: float
    """Of the remaining time; a part of 1."""


class MemoryCalibrationRow(ResponseModel):
    """How good estimates of GPU memory of the same origin were, with which jobs started."""

    source: str
    """learned or static (from its model)."""
    same_arguments: bool
    """Learned from runs with the same arguments."""
    words: str
    """The same in words."""
    estimates: int
    within: int
    """How many peaks were within the interval."""
    covered: int
    """How many were not above its top, which is what is reserved."""
    median_error: float
    """Of the peak; a part of 1."""


class CalibrationTable(ResponseModel):
    """How good forecasts of run time and of memory were, of the newest 500 jobs that succeeded."""

    rows: list[CalibrationRow]
    memory: list[MemoryCalibrationRow]


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


class EndForecastRow(ResponseModel):
    """When a job is expected to end; times of the clock are null while no start can be said."""

    run_s: float
    """How long it is expected to run from now, or from its start, in seconds."""
    run_low_s: float
    """8 of 10 jobs should end between this ..."""
    run_high_s: float
    """... and this."""
    end_s: float | None
    """Of a job that waits: for the start that is expected, which has no interval of its own."""
    low_s: float | None
    high_s: float | None
    is_calibrated: bool
    """Whether the interval was learned from jobs that have ended; otherwise it is assumed."""
    basis: str
    """steps, profile, loss, runs (same arguments) or program (other arguments)."""
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
    end: EndForecastRow | None
    """Null where nothing is known of how long it runs, and once it has ended."""
    remarks: list[str]
    last_lines: tuple[str, ...] = ()
    """The end of its output, where it ended without success."""
    failure: FailureRow | None = None
    """Why its last run failed; null once it has succeeded."""


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


class GpuUsePoint(ResponseModel):
    """What the processes of a job used of all its GPUs in a piece of time."""

    at_s: float
    """When it began."""
    util: float | None
    """Mean part of the time in which they computed, from 0 to 1; null where the driver does not say."""
    memory_bytes: int
    """The most that they had."""


class SpeedPoint(ProgressReport):
    """A progress report, and how fast the job was until then."""

    steps_per_s: float | None
    """Since the report before; null of the first one and where steps began again."""


class JobCurves(ResponseModel):
    """A job over time, for drawing."""

    gpu: list[GpuUsePoint]
    gpu_every_s: float
    """How much time a point stands for; between points that are farther apart nothing was used."""
    gpu_sentence: str
    """Why there are no points; empty where there are."""
    progress: list[SpeedPoint]
    """Evenly thinned where there are very many."""


class AttemptRow(ResponseModel):
    attempt: int
    ranks: list[int]
    """Ranks whose output is kept."""


class AttemptList(ResponseModel):
    """The attempts of a job whose output is kept, the first one first."""

    attempts: list[AttemptRow]


class PlacedDevice(ResponseModel):
    name: str
    share: float
    """How much of it the job has: 0.5 is half of it; 0: none."""
    others: int
    """How many other jobs are on it."""


class PlacedNode(ResponseModel):
    """A node that a job is on, with all its devices."""

    name: str
    type: str
    domains: dict[str, str]
    """Names of the domains around it, such as its rack, where it was given any."""
    islands: list[list[PlacedDevice]]
    """Devices that are near each other lie together: those of a socket or a PCIe switch."""


class JobPlacement(ResponseModel):
    """Where a job is."""

    nodes: list[PlacedNode]
    """Empty while it is nowhere."""
    span: str | None
    """The innermost level that holds all its devices: gpu, island, node, rack, cluster, ..."""
    is_frozen: bool
    """It is suspended in the memory of these nodes, and its devices are free for others."""


class RunEnvironment(ResponseModel):
    workdir: str
    environment: dict[str, str]


class GpuRow(ResponseModel):
    """What the driver said of a GPU, or of a MIG slice, last; null where it does not say."""

    uuid: str
    bookable_bytes: int
    """Memory that jobs may book on it (`trainmaster up --gpu-memory`)."""
    memory_bytes: int | None = None
    memory_used_bytes: int | None = None
    """By everybody, whether it is a job of ours or not."""
    util: float | None = None
    """Part of the time in which any program computed, from 0 to 1."""
    temperature_c: int | None = None
    power_w: int | None = None
    power_limit_w: int | None = None
    ecc_errors: int | None = None
    """Uncorrected memory errors since the driver was loaded."""
    xid_events: int = 0
    """Since the manager started."""
    last_xid: int | None = None
    mig: str | None = None
    """The profile of a MIG slice, such as 1g.10gb; null for a whole GPU."""
    nvlink: tuple[str, ...] = ()
    """The devices that it reaches by NVLink."""
    near: tuple[str, ...] = ()
    """Those that it reaches by NVLink or under one PCIe switch."""
    trouble: str | None = None
    """Why it does not answer."""


class SetAsideRow(ResponseModel):
    """That nothing is started on a device."""

    since_s: float
    why: str


class DeviceRow(ResponseModel):
    name: str
    jobs: list[str]
    gpu: GpuRow | None = None
    """Null for a CPU slot."""
    set_aside: SetAsideRow | None = None
    """Null where it is used."""


class SelfTestRow(ResponseModel):
    """What the self-test of a device says."""

    device: str
    verdict: str
    """good, bad, slow or untested."""
    sentence: str


class SelfTestList(ResponseModel):
    tests: list[SelfTestRow]


class GpuUse(ResponseModel):
    """What the processes of a job use on one device."""

    device: str
    uuid: str
    memory_bytes: int
    util: float | None
    """Part of the time in which they computed, from 0 to 1; null where the driver does not say."""


class NodeRow(ResponseModel):
    name: str
    host: str | None
    """The address of a node of a cluster; null while it is away."""
    domains: dict[str, str]
    """Names of the domains around it, such as its rack, where it was given any."""
    type: str
    speed: float
    """How fast devices of this type count, relative to the nominal type: 1."""
    speed_source: str
    """stated, measured, or assumed: then nobody knows it, and it counts as 1."""
    state: str
    """up, draining, maintenance, away or set aside."""
    devices: list[DeviceRow]
    frozen: list[str]
    """Jobs that are suspended in memory here."""
    leaving: list[str]
    """Jobs whose processes still run here, and are told to leave."""
    cpus: float
    memory_bytes: int
    remarks: list[str]


class LeftOutNode(ResponseModel):
    """A node of the cluster that is there, and takes nothing."""

    name: str
    """A node that is used may have the same one."""
    why: str


class GpuCurve(ResponseModel):
    """One GPU over time: means over the steps; null where nobody looked, or the driver does not say."""

    device: str
    util: list[float | None]
    """Part of the time in which any program computed, from 0 to 1."""
    memory_bytes: list[int | None]
    """In use by everybody, to 16 MiB."""
    temperature_c: list[float | None]
    power_w: list[float | None]


class NodeCurves(ResponseModel):
    """The GPUs of a node over time, since this manager started; without GPUs where they are not read."""

    times_s: list[float]
    """When each step begins."""
    step_s: float
    gpus: list[GpuCurve]


class NodeList(ResponseModel):
    nodes: list[NodeRow]
    left_out: list[LeftOutNode]


class GridNode(ResponseModel):
    name: str
    rack: str
    """The domain just around it; empty where the cluster has none."""
    state: str
    """As in `NodeRow`."""
    type: str
    devices: int


class GridJob(ResponseModel):
    id: str
    name: str
    user: str
    queue: str
    state: JobState


class Grid(ResponseModel):
    """Every device. They are numbered in the order of `nodes`: those of the first node come first."""

    at_s: float
    nodes: list[GridNode]
    jobs: list[GridJob]
    """Those on devices that the caller may know of."""
    held: list[tuple[int, int | None, float, int]]
    """Device, place of the job in `jobs` (null: one that the caller may not know of), GPUs that it has of
    this device, and how: 0 it has them, 1 it is suspended in memory there, 2 it was told to leave."""
    set_aside: list[tuple[int, str]]
    """Device, and why nothing is started there."""
    measured: list[tuple[int, float | None, int | None, int | None, int | None]]
    """Device, utilisation from 0 to 1, bytes of memory in use and in all, degrees Celsius."""


class TimelineSpan(ResponseModel):
    """A time in which a job held the same devices."""

    job: str | None
    """Null where the caller may not know of it."""
    name: str
    user: str
    """Empty where the caller may not know of the job, as its name."""
    attempt: int | None
    devices: list[str]
    from_s: float
    to_s: float
    goes_on: bool
    """Whether it has not ended: `to_s` is now."""
    ended: str | None
    """suspended, migrated, resized, failed, lost, stopped, pre-run, or the state in which the job ended; null
    where it went on, in another queue or at another price, and where the caller may not know of the job."""


class Timeline(ResponseModel):
    since_s: float
    until_s: float
    is_cut: bool
    """Whether there was more: the oldest spans are left out."""
    spans: list[TimelineSpan]


class OverviewJob(ResponseModel):
    """A job that needs a person."""

    job: str
    name: str
    """Empty where the caller may not know it."""
    user: str
    queue: str
    seconds: float
    """How long it has waited, been idle, or given no sign of life."""
    sentence: str | None
    """Why it waits, how it hangs; null where the caller may not know it."""


class FailureClass(ResponseModel):
    """Runs that failed for the same reason."""

    reason: str
    title: str
    blame: str
    """user, platform or unknown."""
    runs: int
    jobs: list[str]
    """The last five."""
    gpu_hours: float
    last_s: float


class NodeNote(ResponseModel):
    """A node, or a device, that takes nothing."""

    name: str
    state: str
    """away, draining, maintenance or set aside."""
    why: str


class QueueBar(ResponseModel):
    """What a queue holds, with those inside it."""

    name: str
    parent: str | None
    guaranteed_gpus: float
    maximum_gpus: float | None
    gpus: float
    borrowed_gpus: float
    """Of them beyond what is guaranteed to it."""
    waiting_gpus: float
    """What its waiting jobs ask for that may start."""
    starved_gpus: float
    """What is guaranteed to it, asked for by its waiting jobs, and not given."""


class Overview(ResponseModel):
    """The cluster at a glance, and what needs a person."""

    at_s: float
    policy: str
    policy_since_s: float
    obeys_queues: bool
    """Whether guarantees of queues hold under the policy."""
    gpus: int
    """Devices of nodes that are not away."""
    gpus_used: int
    """Devices that jobs hold."""
    utilisation: float | None
    """Mean over the held devices that are measured, from 0 to 1; null: none is."""
    gpus_measured: int
    """Held devices of which the utilisation is known."""
    running: int
    pending: int
    suspended: int
    oldest_wait: OverviewJob | None
    """Of the jobs that may start."""
    gpus_idle: int
    """Devices that jobs hold without computing, for 5 minutes and longer."""
    lost_gpu_hours: float
    """GPU time of work that was lost since midnight (UTC); of a plain user: of their own jobs."""
    failures: list[FailureClass]
    """Of the last 24 hours, the most frequent first; for those who are no operators: of their own jobs."""
    long_waits: list[OverviewJob]
    """The ten that have waited longest of those that may start and have waited for half an hour or longer."""
    hung: list[OverviewJob]
    idle: list[OverviewJob]
    nodes: list[NodeNote]
    queues: list[QueueBar]


class AuditRow(ResponseModel):
    """A request that changed something, was refused or showed secrets."""

    at: str
    user: str | None
    role: str | None
    via: str | None
    uid: int | None
    pid: int | None
    token: str | None
    """The id of the token that was shown."""
    peer: str | None
    verb: str | None
    path: str | None
    subject: str | None
    """What it changed: the body that was sent, and the id of what was made."""
    status: int | None
    left_out: int | None
    """Requests of the same user or address since the last one written, which came too often."""


class AuditList(ResponseModel):
    entries: list[AuditRow]


class ReservationRow(ResponseModel):
    """Devices that are kept free for maintenance, or for a user or a queue."""

    number: int
    is_maintenance: bool
    has_begun: bool
    begin_s: float
    end_s: float
    nodes: list[str]
    """Nodes in maintenance; empty if it is for a user or a queue."""
    devices: list[str]
    user: str
    queue: str
    reason: str
    by: str
    """Who made it."""
    force: bool
    """Whether runs that lose work are ended too when it begins."""
    left: list[str]
    """Jobs that still run on the devices now, or would lose work if they were suspended."""


class ReservationList(ResponseModel):
    reservations: list[ReservationRow]


class InputRow(ResponseModel):
    """An input path that is set aside."""

    path: str
    since_s: float
    jobs: list[str]
    """Jobs that failed on it."""
    users: list[str]
    reasons: list[str]
    waiting: list[str]
    """Jobs that name it and wait."""


class InputList(ResponseModel):
    inputs: list[InputRow]


class BudgetRow(ResponseModel):
    """GPU-hours of a queue or a user in each period, and what was used of them in this one."""

    gpu_hours: float
    per: str
    """day, week, month, year, or total: it is not renewed."""
    when_used_up: str
    """What happens to running jobs: finish or suspend. New ones wait."""
    starting: str | None
    """A day on which a period begins; null: on the calendar."""
    used_gpu_hours: float
    used_ratio: float
    began_s: float
    """When the present period began."""
    renews_s: float | None
    warning: str | None
    """That little is left, or nothing."""


class UserLimitsRow(ResponseModel):
    """What a user may have at most, in all queues together, and has; null: no limit."""

    user: str
    """`*`: everybody who has no limits of their own."""
    max_gpus: float | None
    max_running: int | None
    max_jobs: int | None
    budget: BudgetRow | None
    gpus: float
    """GPUs that their jobs hold now; of `*` that of all users."""
    running: int
    """Jobs that hold GPUs now."""
    jobs: int
    """Jobs that have not ended."""


class UserLimitsList(ResponseModel):
    limits: list[UserLimitsRow]


class PricesRow(ResponseModel):
    """What a GPU-hour costs from now on, by GPU type."""

    prices: dict[str, float]
    currency: str


class UsageRow(ResponseModel):
    """GPU time of a user, a queue, a job, a GPU type, an outcome, a time or a cause of loss, and its cost."""

    user: str | None
    queue: str | None
    job: str | None
    gpu_type: str | None
    outcome: str | None
    """The state of its jobs now: those that have ended keep it."""
    begin_s: float | None
    """When this day or hour begins, in UTC."""
    lost_to: str | None
    """preemption, resize, suspension by a person, or the reason of a failure (docs/failures.md); `not
    recorded` before an upgrade. Of such rows only `lost_gpu_hours` and `jobs` are not 0."""
    jobs: int
    """How many used any."""
    gpu_s: float
    gpu_hours: float
    lost_gpu_hours: float
    """Of it for work that was lost to failures or preemption."""
    cost: float
    """At the prices of its time; 0 for what had none."""
    unpriced_gpu_hours: float
    """Of it without a price."""


class UsageReport(ResponseModel):
    """What was used in a time, the largest first, and all together."""

    by: str
    since_s: float
    until_s: float
    currency: str
    rows: list[UsageRow]
    total: UsageRow


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
    max_gpus_per_user: float | None = None
    """GPUs that one user's jobs in it, and in queues inside it, may hold."""
    max_running_per_user: int | None = None
    max_jobs_per_user: int | None = None
    """Jobs of one user that have not ended: more are refused."""
    budget: BudgetRow | None = None
    """GPU-hours of its jobs, and of those in queues inside it."""


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
    judges_deadlines: bool = False
    """Whether it says of each deadline if it can be kept."""


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
    engine: str
    """What runs the jobs: local, this machine, or ray, the nodes of a Ray cluster."""
    cluster: str | None
    """The address of that cluster."""
    fence_s: float | None
    """After so long a node that the cluster does not know to be alive ends its jobs."""
    policy: str | None
    devices: int | None
    used: int | None
    """Devices that jobs hold now."""
    device_type: str | None
    jobs: dict[str, int] | None
    """How many jobs are in each state, in total."""
    url: str | None = None
    """Where browsers and other machines find it."""
    fingerprint: str | None = None
    """SHA-256 of its certificate, where it speaks TLS itself; clients compare it."""


class TokenInfo(ResponseModel):
    """A token, without the token itself."""

    id: str
    user: str
    """Whose jobs are its own."""
    role: str
    """viewer, user, operator or admin."""
    label: str
    """What it is for."""
    created_s: float
    expires_s: float | None
    revoked_s: float | None
    used_s: float | None
    """When it was last used, to some minutes."""


class CreatedToken(TokenInfo):
    token: str
    """Shown this once."""


class TokenList(ResponseModel):
    tokens: list[TokenInfo]


class UserInfo(ResponseModel):
    """A Unix user of the manager's machine."""

    name: str
    role: str
    """viewer, user, operator or admin."""
    changed_s: float


class UserList(ResponseModel):
    users: list[UserInfo]


class CallerInfo(ResponseModel):
    """Who asks."""

    user: str
    role: str
    """viewer, user, operator or admin."""
    via: str
    """socket, token, or link for a session of the page."""
    uid: int | None
    """The Unix user, over the socket."""
    token: str | None
    """The id of the token."""


class LoginLink(ResponseModel):
    url: str
    """Works once."""
    expires_s: float


class ChangeRow(ResponseModel):
    """What happened, as the data of a server-sent event."""

    seq: int
    at_s: float
    what: str
    job: str | None
    detail: dict[str, Any]
    user: str | None = None
    """Whose job it is."""


class SentEvent(ResponseModel):
    """One server-sent event; `data` is JSON in a text."""

    event: str
    data: str
    id: str | None = None
    """Give it as Last-Event-ID to go on after it."""


class LabRow(ResponseModel):
    """A comparison of policies on a trace, which somebody asked for."""

    id: str
    user: str
    title: str
    state: str
    """waiting, running, done, failed or cancelled."""
    progress: float
    """From 0 to 1."""
    says: str
    """What it does now, or why it failed."""
    asked_s: float
    ended_s: float | None


class LabList(ResponseModel):
    comparisons: list[LabRow]


class LabComparison(LabRow):
    result: dict[str, Any] | None
    """`policies`, and for each `metrics` with values, words and which is best; `runs` with curves: the parts
    of jobs by JCT and by wait, utilisation and jobs that wait over time. Null until it is done."""


class PortRow(ResponseModel):
    """A port that a job listens on."""

    job: str
    port: int


class RecordedScenario(ResponseModel):
    """What a recorded trace ran on."""

    cluster: dict[str, Any]
    """The cluster file, with the times at which nodes left, came back and were drained."""
    queues: dict[str, Any]
    """The queues file; empty: there are no queues and no limits of users."""
    perf: dict[str, Any]
    """The perf file: how long starts and suspensions took here."""
    policy: str
    """The policy in force."""
    options: dict[str, str]
    """Its options, as far as they were set."""
