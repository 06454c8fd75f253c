"""What failures cost, as values: runs that failed, and the tables that are made of them."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from trainmaster.model.failure import Blame


@dataclass(frozen=True, slots=True)
class FailedRun:
    """One attempt that failed."""

    job: str
    reason: str
    run_ms: int
    """Run time to failure."""
    gpus: int
    """Thousandths of a GPU that it held."""
    blame: str = Blame.UNKNOWN
    user: str = ""
    program: str = ""
    devices: tuple[str, ...] = ()
    """`node:number`."""
    path: str = ""
    """The input that it could not read."""

    @property
    def gpu_ms(self) -> int:
        """GPU time that was lost with it: thousandths of a GPU x ms."""
        return self.run_ms * self.gpus


@dataclass(frozen=True, slots=True)
class JobEnd:
    """How a job ended, and the GPU time that it held in all: thousandths of a GPU x ms."""

    status: str
    gpu_ms: int


@dataclass(frozen=True, slots=True)
class ReasonRow:
    """What one reason cost; shares are parts of 1."""

    reason: str
    blame: str
    """Whose fault it is; several with commas between."""
    trials: int
    jobs: int
    users: int
    p50_min: float
    p90_min: float
    p95_min: float
    """Run time to failure, in minutes, by nearest rank."""
    run_share: float
    """Of the run time to failure of all failed attempts."""
    sizes: tuple[int, ...]
    """Failed attempts on 1, 2-4 and more than 4 GPUs."""
    gpu_hours: float
    gpu_share: float
    """Of run time to failure x GPUs."""


@dataclass(frozen=True, slots=True)
class FailureSource:
    """A program, user, node, device or input that failed attempts have in common."""

    name: str
    trials: int
    jobs: int
    gpu_hours: float
    gpu_share: float
    reasons: tuple[str, ...]
    """Its most expensive reasons, the worst first."""


@dataclass(frozen=True, slots=True)
class StatusRow:
    """Jobs that ended in one way."""

    status: str
    jobs: int
    share: float
    gpu_hours: float
    gpu_share: float


@dataclass(frozen=True, slots=True)
class FailureReport:
    """Failed attempts by reason, the most expensive first, and what stands behind them."""

    trials: int
    jobs: int
    gpu_hours: float
    reasons: tuple[ReasonRow, ...]
    programs: tuple[FailureSource, ...]
    users: tuple[FailureSource, ...]
    nodes: tuple[FailureSource, ...]
    devices: tuple[FailureSource, ...]
    inputs: tuple[FailureSource, ...]
    statuses: tuple[StatusRow, ...]


@dataclass(frozen=True, slots=True)
class RuleEffects:
    """What rules about failures did in a simulation."""

    rules: tuple[str, ...] = ()
    jobs_given_up: int = 0
    """Not retried although the trace has another attempt, ..."""
    jobs_given_up_in_vain: int = 0
    """... of those, jobs that do not fail in the end."""
    jobs_set_aside: int = 0
    """Not started because their input was blocked."""
    inputs_blocked: int = 0
    prerun_gpu_hours: float = 0.0
    """Of pre-runs that passed."""


@dataclass(frozen=True, slots=True)
class SimulatedFailures:
    """What failed in a simulation."""

    effects: RuleEffects
    report: FailureReport


DECIMALS = 6


def as_json(value: FailureReport | RuleEffects) -> dict[str, Any]:
    """As answers and result files have it: parts of 1 and hours to 6 decimals."""
    return {key: _rounded(each) for key, each in asdict(value).items()}


def _rounded(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _rounded(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_rounded(each) for each in value]
    return round(value, DECIMALS) if isinstance(value, float) else value
