"""What a comparison is made of: suites of experiments, as values that tables are written in.

A suite has experiments; an experiment asks one question of its contenders, on workloads, under
conditions. One contender, workload, conditions and seed make a trial.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum

WARM_UP = 0.2
"""Part of the arrival span whose jobs fill the cluster and tune contenders, but are not measured."""
TAIL = 0.4
"""Part of a generated stream that arrives after the measured jobs."""

PolicySettings = Mapping[str, str]
"""Options of a policy, as `--set` would take them."""


class SuiteError(ValueError):
    """A suite, experiment or workload that cannot be run as it is stated: one sentence."""


TRACKS = {
    "order": ("order", "Order only: rigid jobs, ideal conditions"),
    "placement": ("placement", "With locality and the cost of switching"),
    "packing": ("packing", "With packing"),
    "elastic": ("elastic", "With elastic jobs"),
    "sweep": ("sweeps", "Sweeps"),
    "paper": ("papers", "Experiments from the papers"),
    "ablation": ("ablations", "Ablations"),
}
"""Groups of experiments with the same permissions and costs: name in tables, and heading."""
RANKED_TRACKS = ("order", "placement", "packing", "elastic")
"""Tracks whose contenders are ranked over a whole suite; the others vary settings."""


def track_words(name: str) -> str:
    return TRACKS[name][0] if name in TRACKS else name


def track_title(name: str) -> str:
    return TRACKS[name][1] if name in TRACKS else name.capitalize()


# -- contenders --------------------------------------------------------------------------------------


class ContenderRole(Enum):
    """What a contender is; ours is to beat the published ones."""

    OURS = "ours"
    PUBLISHED = "published"
    BOUND = "bound"
    """Knows all run times: shows how much is left to gain."""
    ABLATION = "ablation"
    """Ours with a part switched off."""


@dataclass(frozen=True, slots=True)
class Contender:
    """A policy with its settings, under the label that reports give it."""

    label: str
    policy: str
    settings: PolicySettings = field(default_factory=dict)
    grid: tuple[PolicySettings, ...] = ()
    """Settings tried on the jobs before the measured ones; the best is added to `settings`."""
    role: ContenderRole = ContenderRole.PUBLISHED


# -- workloads ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class WorkloadChanges:
    """Changes to the jobs of a source, drawn by the trial's seed."""

    elastic: float = 0.0
    """Fraction of the jobs that are elastic."""
    shrink: int = 4
    """An elastic job runs on no fewer than its GPUs divided by this."""
    grow: int = 4
    """An elastic job can use up to its GPUs times this, or the whole cluster."""
    models: tuple[str, ...] = ()
    """Models, one drawn for each job, instead of the source's own."""
    memory_gib: tuple[float, ...] = ()
    """GPU memory, one drawn for each job."""
    gpu_util: tuple[float, ...] = ()
    """Part of a GPU's cycles that a job keeps busy alone, one drawn for each job."""
    longest_s: float | None = None
    """Run times are cut here."""
    rigid: bool = False
    """Every job runs on exactly the GPUs it asks for, whatever the source says."""
    passes: bool = False
    """Every job succeeds at its first attempt, whatever the source says."""
    first_attempts: bool = False
    """Failed attempts before a job's last one are left out: no policy can shorten them, and the load
    does not count them. How a job ends stays."""


@dataclass(frozen=True, slots=True)
class Generated:
    """A stream drawn again for every seed, scaled to offer this load to the workload's cluster."""

    jobs: int
    load: float
    like: str = "philly"
    changes: WorkloadChanges = WorkloadChanges()
    tail: float = TAIL
    """Fraction of the span after the measured window, so that the window ends under load."""


@dataclass(frozen=True, slots=True)
class TraceSubset:
    """Which jobs of a file are used; the fields are applied in this order."""

    queue: str | None = None
    """Only jobs of this queue (virtual cluster)."""
    busiest_days: int | None = None
    """Only this number of consecutive days: those with the most GPU time submitted."""
    first: int | None = None
    last: int | None = None
    at_most: int | None = None
    """Largest number of jobs; more are thinned evenly."""


@dataclass(frozen=True, slots=True)
class TraceFile:
    """A trace under the data folder. It is fixed: seeds matter only for changes, estimates and failures."""

    path: str
    format: str | None = None
    part: TraceSubset = TraceSubset()
    changes: WorkloadChanges = WorkloadChanges()
    load: float | None = None
    """Arrivals are stretched or squeezed to offer this load; None leaves them."""


@dataclass(frozen=True, slots=True)
class SyntheticTrace:
    """A trace that a function of `evaluation.suites.synthetic_traces` makes for one experiment."""

    name: str
    changes: WorkloadChanges = WorkloadChanges()


JobSource = Generated | TraceFile | SyntheticTrace


@dataclass(frozen=True, slots=True)
class Workload:
    """Jobs and the cluster that they run on."""

    name: str
    source: JobSource
    cluster: str | Mapping[str, object]
    """Shorthand such as `15x4`, or a description as in a cluster file."""
    seeds: tuple[int, ...] = (0,)
    warm_up: float = WARM_UP
    """Part of the span before the measured jobs; 0 measures all."""
    title: str = ""
    queues: Mapping[str, object] | None = None
    """Content of a queues file; without one every queue has weight 1 and no bounds."""


@dataclass(frozen=True, slots=True)
class Conditions:
    """The performance model, and what policies are told about run times."""

    name: str
    perf: str | Mapping[str, object] = "default"
    """`ideal`, `default`, or the content of a perf file."""
    estimates: str = "none"
    """`exact`, `noisy:F` or `none`."""


# -- experiments -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Experiment:
    """One question, put to contenders on the same workloads under the same conditions."""

    name: str
    title: str
    question: str
    track: str
    """One of `TRACKS`, or another word: the report's section."""
    workloads: tuple[Workload, ...]
    contenders: tuple[Contender, ...]
    conditions: tuple[Conditions, ...] = (Conditions("default"),)
    baseline: str = "las"
    """Label of the contender that the others are compared with."""

    def __post_init__(self) -> None:
        _refuse_twice(self.name, "workload", [each.name for each in self.workloads])
        _refuse_twice(self.name, "conditions", [each.name for each in self.conditions])
        labels = [each.label for each in self.contenders]
        _refuse_twice(self.name, "contender", labels)
        if self.baseline not in labels:
            raise SuiteError(f"{self.name}: the baseline {self.baseline} is not a contender.")
        tuned = [each.label for each in self.contenders if each.grid]
        unready = [each.name for each in self.workloads if not each.warm_up]
        if tuned and unready:
            raise SuiteError(
                f"{self.name}: {tuned[0]} is tuned on the jobs before the measured ones,"
                f" of which {unready[0]} has none."
            )

    def trials(self) -> Iterator[Trial]:
        """In the order of the tables: workload, conditions, contender, seed."""
        for workload in self.workloads:
            for conditions in self.conditions:
                for contender in self.contenders:
                    for seed in workload.seeds:
                        yield Trial(self.name, workload, conditions, contender, seed)


@dataclass(frozen=True, slots=True)
class Suite:
    """Experiments that are run and reported together."""

    name: str
    title: str
    experiments: tuple[Experiment, ...]

    def __post_init__(self) -> None:
        _refuse_twice(self.name, "experiment", [each.name for each in self.experiments])

    def trials(self) -> Iterator[Trial]:
        for experiment in self.experiments:
            yield from experiment.trials()


@dataclass(frozen=True, slots=True)
class Trial:
    """One simulation to be run."""

    experiment: str
    workload: Workload
    conditions: Conditions
    contender: Contender
    seed: int

    def __str__(self) -> str:
        return (
            f"{self.experiment}: {self.contender.label} on {self.workload.name},"
            f" {self.conditions.name}, seed {self.seed}"
        )


def _refuse_twice(where: str, what: str, names: Sequence[str]) -> None:
    twice = next((name for index, name in enumerate(names) if name in names[:index]), None)
    if twice is not None:
        raise SuiteError(f"{where} has the {what} {twice} twice.")
