"""The perf file: every key is optional and changes a part of `base`. docs/perf.md shows the keys."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise
from typing import Annotated, Any, ClassVar, Literal, cast

from pydantic import AfterValidator, Field

from trainmaster.config.validation import (
    MOST,
    FileModel,
    Label,
    Lines,
    amount,
    checked,
    positive,
    scaled,
)
from trainmaster.model.placement import Sharing
from trainmaster.model.units import HOUR, NOMINAL, SECOND
from trainmaster.perf import default_parameters as published
from trainmaster.perf.gpu_interference import SharedGpu, SharingLaw
from trainmaster.perf.interpolation import Table
from trainmaster.perf.locality import PER_DOUBLING, Locality
from trainmaster.perf.model_zoo import table_name
from trainmaster.perf.network_contention import NetworkContention
from trainmaster.perf.perf_model import DEFAULT, IDEAL, PerfModel
from trainmaster.perf.scaling import Elasticity

BASES = {"ideal": IDEAL, "default": DEFAULT}
GIGA = 1_000_000_000
PATHS = {
    "driver": (published.DRIVER_SAVE, published.DRIVER_LOAD),
    "cooperative": (published.COOPERATIVE_SAVE, published.COOPERATIVE_LOAD),
    "none": (None, None),
}
"""Ways for GPU memory to leave and return: bytes a second each."""

Seconds = Annotated[int, amount(SECOND)]
Hours = Annotated[int, positive(HOUR)]
Rate = Annotated[int, positive(GIGA)]
Ratio = Annotated[int, positive(NOMINAL)]
Part = Annotated[int, scaled(NOMINAL, least=1, gt=0, le=1, why="1 is all of it")]
"""What is left of a speed, in parts per million."""
BelowOne = Annotated[int, scaled(NOMINAL, ge=0, lt=1)]
Efficiency = Annotated[int, scaled(NOMINAL, ge=0.5, le=1, why="twice the GPUs are never slower")]
Model = Annotated[Label, AfterValidator(table_name)]
NotEmpty = Field(min_length=1)
Two = Annotated[int, Field(ge=2, strict=False)]
PartByCount = Annotated[dict[Two, Part], NotEmpty]
"""`{2: 0.765, 4: 0.53}`: what is left of the speed at each count."""
Width = Annotated[int, scaled(PER_DOUBLING, gt=1, lt=1e6)]


def _word(second: str) -> AfterValidator:
    """Whether a key says the second of two words."""
    return AfterValidator(lambda word: word == second)


def _speedups(speeds: dict[int, float]) -> Table:
    """Speeds in any unit, relative to one GPU; more GPUs are never slower."""
    if 1 not in speeds:
        raise ValueError("must say the speed on 1 GPU, which the others are relative to")
    for fewer, more in pairwise(speeds):
        if fewer >= more:
            raise ValueError(f"must go from fewer GPUs to more, not from {fewer} to {more}")
        if speeds[fewer] > speeds[more]:
            raise ValueError(
                f"must not fall: {more} GPUs are slower than {fewer};"
                f" leave {more} out, and the speed stays that of {fewer}"
            )
    return {gpus: round(speed / speeds[1] * NOMINAL) for gpus, speed in speeds.items()}


Speedups = Annotated[
    dict[Annotated[int, Field(ge=1, strict=False)], Annotated[float, Field(gt=0, le=MOST)]],
    AfterValidator(_speedups),
]
"""`{1: 100, 2: 190, 4: 340}`: speeds at each number of GPUs."""


class Speed(FileModel):
    """What a gang keeps of its speed where it is placed."""

    default: dict[Label, Part] = {}
    models: dict[Model, dict[Label, Part]] = {}
    nodes: dict[Model, Annotated[dict[Two, PartByCount], NotEmpty]] = {}
    """`{resnet50: {4: {2: 0.72, 4: 0.42}}}`: model, GPUs, nodes."""
    widths: dict[Model, Annotated[dict[Width, Part], NotEmpty]] = {}
    """`{vgg16: {2: 0.73}}`: on twice the fewest nodes that a gang needs, where it needs several."""

    def over(self, base: Locality, error_ppm: int) -> Locality:
        """A model that the file names loses what was measured of it on several nodes."""
        models = {**base.models}
        for name, table in self.models.items():
            models[name] = {**models.get(name, {}), **table}
        kept = {name: table for name, table in base.node_counts.items() if name not in self.models}
        wide = {name: table for name, table in base.widths.items() if name not in self.models}
        spans = {**base.spans, **self.default}
        return Locality(spans, models, {**kept, **self.nodes}, {**wide, **self.widths}, error_ppm)


class Elastic(FileModel):
    """What a gang gains with its size."""

    default_efficiency: Efficiency | None = None
    models: dict[Model, Speedups] = {}


CostByUtil = Annotated[dict[Part, Ratio], NotEmpty]
"""`{0.5: 0.6, 1: 0.91}`: GPU time in company over that alone, by what part of the GPU a job uses."""


class CostByMode(FileModel):
    mps: CostByUtil = {}
    time: CostByUtil = {}


class Opportunistic(FileModel):
    tolerance_ppm: BelowOne = Field(default=0, alias="tolerance")
    floor_ppm: Part = Field(default=0, alias="floor")


class SharingSection(FileModel):
    """What jobs lose beside each other on a GPU."""

    other_words: ClassVar[Mapping[str, str]] = dict.fromkeys(
        ("times", "small_util"), "cost (GPU time in company by utilisation, not by number of jobs)"
    )
    law: Annotated[SharingLaw, Field(strict=False)] = SharingLaw.LINEAR
    constant_ppm: Annotated[int, scaled(NOMINAL, least=-(10**15), gt=-1e9, lt=1e9)] = Field(
        default=0, alias="a"
    )
    per_job_ppm: Ratio = Field(default=0, alias="b")
    costs: CostByMode = Field(default=CostByMode(), alias="cost")
    contention_ppm: BelowOne = Field(default=0, alias="contention")
    bandwidth: dict[Model, Part] = {}
    pairs: dict[Model, dict[Model, Part]] = {}
    """`{gnmt: {lm: 0.955}}`: what GNMT keeps of its speed beside LM."""
    opportunistic: Opportunistic = Opportunistic()

    def over(self, base: SharedGpu) -> SharedGpu:
        """Another law than the base's drops the measured pairs and brings its own costs."""
        stated = self.stated()
        stated.pop("opportunistic", None)
        pairs = {(a, b): left for a, others in self.pairs.items() for b, left in others.items()}
        if (law := stated.get("law", base.law)) is not base.law:
            law_of = published.SHARED_GPU if law is SharingLaw.H200 else SharedGpu()
            base = replace(base, pairs={}, costs=law_of.costs, contention_ppm=law_of.contention_ppm)
        costs = {Sharing(mode): table for mode, table in self.costs.stated().items()}
        return replace(
            base,
            **stated
            | self.opportunistic.stated()
            | {
                "costs": {**base.costs, **costs},
                "pairs": {**base.pairs, **pairs},
                "bandwidth": {**base.bandwidth, **self.bandwidth},
            },
        )


class Wires(FileModel):
    """What gangs lose beside each other on a server or a network card."""

    server: dict[Model, PartByCount] = {}
    nic: dict[Model, PartByCount] = {}


class Switch(FileModel):
    """What it costs to start, suspend, resume and resize."""

    start_ms: Seconds = Field(default=0, alias="start_s")
    suspend_ms: Seconds = Field(default=0, alias="suspend_s")
    resume_ms: Seconds = Field(default=0, alias="resume_s")
    thaw_ms: Seconds = Field(default=0, alias="thaw_s")
    freeze_ms: Seconds = Field(default=0, alias="freeze_s")
    resize_ms: Seconds = Field(default=0, alias="resize_s")
    can_freeze: Annotated[Literal["halt", "freeze"], _word("freeze")] = Field(
        default="halt", alias="by"
    )
    saves: Literal["never", "periodic", "on-demand"] = "periodic"
    path: Literal["driver", "cooperative", "none"] | None = None
    save_bytes_s: Rate = Field(default=0, alias="save_gb_s")
    load_bytes_s: Rate = Field(default=0, alias="load_gb_s")

    def changes(self) -> dict[str, Any]:
        stated = self.stated()
        rates = {}
        if (path := stated.pop("path", None)) is not None:
            rates = dict(zip(("save_bytes_s", "load_bytes_s"), PATHS[path], strict=True))
        saves = {}
        if (when := stated.pop("saves", None)) is not None:
            saves = {"saves_on_demand": when == "on-demand", "saves_ever": when != "never"}
        return rates | saves | stated


class NodeFailures(FileModel):
    mtbf_ms: Hours = Field(default=0, alias="mtbf_h")
    repair_ms: Hours = Field(default=0, alias="repair_h")
    detection_ms: Seconds = Field(default=0, alias="detection_s")


class PerfFile(FileModel):
    base: Literal["ideal", "default"] = "default"
    speed: Speed = Speed()
    gpu_speed: dict[Model, Annotated[dict[Model, Ratio], NotEmpty]] = {}
    """`{resnet50: {K80: 0.14, V100: 1}}`: relative to the GPU that run times were measured on."""
    table_error: BelowOne | None = None
    elastic: Elastic = Elastic()
    elastic_efficiency: Efficiency | None = None
    interference: bool | None = None
    sharing: SharingSection = SharingSection()
    neighbours: Wires | Literal[False] = Wires()
    switch: Switch = Switch()
    node_failures: NodeFailures = NodeFailures()
    checkpoint_every_s: Annotated[int, positive(SECOND)] | None = None
    failures: bool | None = None
    split_speed: Part | None = None
    """A model over two GPUs against one that holds all of it."""
    profiling_s: Seconds | None = None


def perf_model_from(raw: object, name: str, lines: Lines | None = None) -> PerfModel:
    """The base that the file names (default: default), with what the file states."""
    said = checked(PerfFile, raw, name, lines)
    base = BASES[said.base]
    stated = said.model_fields_set
    interferes = base.interferes or "sharing" in stated
    if said.neighbours is False:
        neighbours = NetworkContention()
    else:
        interferes = interferes or "neighbours" in stated
        neighbours = NetworkContention(
            {**base.neighbours.server, **said.neighbours.server},
            {**base.neighbours.nic, **said.neighbours.nic},
        )
    node_failures = said.node_failures.stated()
    if said.checkpoint_every_s is not None:
        node_failures["checkpoint_ms"] = said.checkpoint_every_s
    efficiency = said.elastic.default_efficiency or said.elastic_efficiency
    return replace(
        base,
        name=name,
        locality=said.speed.over(base.locality, _or(said.table_error, base.locality.error_ppm)),
        gpu_speeds={**base.gpu_speeds, **said.gpu_speed},
        elasticity=Elasticity(
            _or(efficiency, base.elasticity.doubling_ppm),
            {**base.elasticity.models, **cast(dict[str, Table], said.elastic.models)},
        ),
        interferes=_or(said.interference, interferes),
        shared_gpu=said.sharing.over(base.shared_gpu),
        neighbours=neighbours,
        preemption_cost=replace(base.preemption_cost, **said.switch.changes()),
        node_failures=replace(base.node_failures, **node_failures),
        has_failures=_or(said.failures, base.has_failures),
        split_ppm=_or(said.split_speed, base.split_ppm),
        profiling_ms=_or(said.profiling_s, base.profiling_ms),
    )


def _or(stated: Any, base: Any) -> Any:
    return base if stated is None else stated
