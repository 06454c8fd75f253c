"""A job as lists show it: the part of the API's answers that the command line reads.

Plain dataclasses of the standard library, and no other answers beside them, so that `trainmaster ps` starts
quickly. Times are Unix seconds; absent is null.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, ClassVar, TypeVar, dataclass_transform

from trainmaster.model.job_state import ENDED_STATES, JobState, Transition
from trainmaster.model.stop_reasons import Suspender
from trainmaster.text.formatting import as_sentence

BESIDE = {
    "Dependency": "dependency",
    "ArrayLimit": "array limit",
    "Held": "held",
    "NeverFits": "can never run",
    "RetryDelay": "retry delay",
    "Prerun": "pre-run of another job",
}
"""Reasons that are said beside the state, because no free GPU would help."""
HUNG = "hung"
"""Said beside the state of a job that hangs."""
T = TypeVar("T")
TIMED_OUT = 124
"""Exit status for a job that reached its time limit."""


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


class HangRow(ResponseModel):
    """A job that hangs."""

    since_s: float
    """Its last sign of life."""
    sentence: str
    """`No step for 12 min where its longest was 40 s, no output for 12 min, and its device is idle.`"""
    stacks: list[str]
    """Where its processes are, a sentence for each rank; /jobs/{job}/stacks has all of it."""
    trouble: str | None
    """Why there are no Python stacks of some of them."""


class ProgressReport(ResponseModel):
    at_s: float
    step: int
    loss: float | None
    samples_per_s: float | None


class ProgressRow(ProgressReport):
    total_steps: int | None
    steps_per_s: float | None


def _from_json(kind: type[T], answer: dict[str, Any]) -> T:
    """An object of an answer, which it keeps; a field that an older manager does not send is empty.

    Its fields are not checked and not copied: lists have thousands of rows.
    """
    empty = _empty(kind)
    made = object.__new__(kind)
    made.__dict__ = (
        answer
        if answer.keys() == empty.keys()
        else {name: answer.get(name, value) for name, value in empty.items()}
    )
    return made


EMPTY: Mapping[str, object] = {"float": 0.0, "int": 0, "str": "", "list[str]": ()}
"""By type: what stands for a field that is not sent; for all other types None."""


def _empty(kind: type[Any]) -> dict[str, object]:
    """Fields with what stands for them; remembered, because lists have thousands of rows."""
    if kind not in _EMPTY:
        _EMPTY[kind] = {each.name: EMPTY.get(str(each.type)) for each in fields(kind)}
    return _EMPTY[kind]


_EMPTY: dict[type[Any], dict[str, object]] = {}


class PrerunRow(ResponseModel):
    """The first steps of a job of several devices on one of them."""

    result: str
    """waiting, running, passed, failed, skipped, or unsure: it failed, perhaps for want of devices or
    checkpoints, or was seen to make no step."""
    sentence: str
    attempt: int | None
    """Whose output it is; null before it starts."""
    run_s: float


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
    gpus_now: float | None
    """GPUs that it has now; null while it has none."""
    min_gpus: float | None
    """GPUs that it may have at least; null: it has one size, or has ended, ..."""
    max_gpus: float | None
    """... and at most."""
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
    """How long it trained, in seconds, for work that was lost because it was ended."""
    exit_code: int | None
    end_reason: JobEnd | None
    """Why it failed, timed out or was cancelled."""
    deadline: DeadlineRow | None
    array: str | None
    """The array that it is an element of."""
    array_index: int | None
    progress: ProgressRow | None
    hung: HangRow | None
    """How it hangs; null while it does not."""
    prerun: PrerunRow | None
    """Its pre-run on one device; null where it has none."""

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
        if beside is None and self.hung is not None:
            beside = HUNG
        if beside is None and self.is_prerunning:
            beside = "pre-run"
        if beside is None and self.reason is not None:
            beside = BESIDE.get(self.reason.code)
        label = self.state.replace("_", " ")
        return f"{label} ({beside})" if beside else label

    @property
    def is_prerunning(self) -> bool:
        """Whether what runs of it now is its pre-run."""
        return self.prerun is not None and self.prerun.result == "running"

    @property
    def page(self) -> str:
        """The job that its link leads to."""
        return self.id

    @property
    def size(self) -> str:
        """GPUs that it asks for, for a column: `2`; of an elastic job what it has and may have: `4 (1-8)`."""
        if self.min_gpus is None or self.max_gpus is None:
            return f"{self.gpus:g}"
        may_have = f"{self.min_gpus:g}-{self.max_gpus:g}"
        return f"{self.gpus_now:g} ({may_have})" if self.gpus_now else may_have

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
        if self.hung is not None:
            said = f"{as_sentence(said)} {self.hung.sentence}"
        if self.prerun is not None and self.prerun.result in ("waiting", "running"):
            said = (
                f"{as_sentence(said)} {self.prerun.sentence}" if self.why else self.prerun.sentence
            )
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
    def end_sentence(self) -> str:
        """How it ended, where that is worth saying."""
        if self.state == JobState.SUCCEEDED:
            return ""
        how = "was cancelled" if self.state == JobState.CANCELLED else self.state.replace("_", " ")
        has_code = self.exit_code is not None and self.state == JobState.FAILED
        code = f" with exit code {self.exit_code}" if has_code else ""
        tried = self.prerun if self.state == JobState.FAILED else None
        in_prerun = f" {tried.sentence}" if tried is not None and tried.result == "failed" else ""
        because = f": {self.ended_because}" if self.ended_because else "."
        return f"Job {self.id} {how}{code}{because}{in_prerun}"

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
    "hung": HangRow,
    "prerun": PrerunRow,
}
"""Fields of a job that are objects."""
