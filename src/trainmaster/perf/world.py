"""A world for jobs to run in: how fast by placement, what switching costs, what breaks.

`IDEAL` has no locality penalty, no interference, no switch cost and no failures. `DEFAULT` follows
published and measured figures (docs/simulator.md gives each one's source). A file overrides any.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b

from trainmaster.model.job import Job
from trainmaster.model.placement import Placement, Sharing
from trainmaster.model.topology import Topology
from trainmaster.model.units import HOUR, MINUTE, NOMINAL, SECOND, WHOLE

NEAR = ("gpu", "island", "node")
"""Spans inside one machine."""


@dataclass(frozen=True, slots=True)
class Switching:
    """What it costs to start, suspend, resume, move and resize a run, in ms on its GPUs."""

    start_ms: int = 0
    suspend_ms: int = 0
    resume_ms: int = 0
    """Launch again from a checkpoint: after a suspension, a move, a failure or a lost node."""
    thaw_ms: int = 0
    """Go on after a freeze in place."""
    resize_ms: int = 0
    can_freeze: bool = False
    """Suspend by freezing in place where possible, instead of save and end."""


@dataclass(frozen=True, slots=True)
class Breakage:
    """How often nodes fail, how long repair takes, and how much work a crash costs."""

    mtbf_ms: int | None = None
    """Mean time between failures of one node; None = never."""
    repair_ms: int = 4 * HOUR
    checkpoint_ms: int = 30 * MINUTE
    """Runs save this often: a crash loses what came after."""


@dataclass(frozen=True, slots=True)
class World:
    """All of it, as one value."""

    name: str
    spans: Mapping[str, int] = field(default_factory=dict)
    """Speed of an unknown model by span, in parts per million of its speed inside one node."""
    models: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """The same for known models."""
    switching: Switching = Switching()
    breakage: Breakage = Breakage()
    has_failures: bool = True
    """Whether the trace's failed attempts and final statuses happen."""
    interferes: bool = True
    """Whether jobs that share a GPU slow each other down."""
    doubling_ppm: int = NOMINAL
    """Efficiency kept per doubling of an elastic job's GPUs."""
    table_error_ppm: int = 0
    """True speeds differ from the table by up to this much, per model and span."""

    def span_factor(self, model: str, span: str, seed: int = 0) -> int:
        """Speed at a span, in parts per million of the speed inside one node."""
        if span in NEAR:
            return NOMINAL
        known = self.models.get(model)
        factor = self.spans.get(span) if known is None else known.get(span, self.spans.get(span))
        if factor is None:
            factor = min(self.spans.values(), default=NOMINAL)
        if self.table_error_ppm:
            error = self.table_error_ppm * _noise(f"{seed}/{model}/{span}") // NOMINAL
            factor = max(1, factor * (NOMINAL + error) // NOMINAL)
        return factor

    def scaling(self, count: int, nominal: int) -> int:
        """Speed of an elastic job on `count` GPUs relative to its nominal number."""
        speed = NOMINAL * count // nominal
        large, small = max(count, nominal), min(count, nominal)
        while small * 2 <= large:
            small *= 2
            if count > nominal:
                speed = speed * self.doubling_ppm // NOMINAL
            else:
                speed = speed * NOMINAL // self.doubling_ppm
        return max(1, speed)


def _noise(key: str) -> int:
    """A fixed number in [-10^6, 10^6] for a key: chance without state."""
    digest = int.from_bytes(blake2b(key.encode(), digest_size=8).digest(), "big")
    return digest % (2 * NOMINAL + 1) - NOMINAL


class Speeds:
    """Speeds of placements on one topology in one world; caches only pure results."""

    def __init__(self, world: World, topology: Topology, seed: int = 0) -> None:
        self.world = world
        self.topology = topology
        self.seed = seed
        self._relative: dict[tuple[str, int, int], int] = {}
        self._is_uniform = all(kind.speed_ppm == NOMINAL for kind in topology.types)

    def alone(self, job: Job, placement: Placement) -> int:
        """Speed with nobody on the same GPUs, relative to the job's best placement."""
        count, nominal = len(placement.slices), job.demand.nominal
        key = (job.model, count, placement.span)
        speed = self._relative.get(key)
        if speed is None:
            speed = self._relative[key] = self._by_span(job.model, count, placement.span)
        if count != nominal.count:
            speed = speed * self._by_shape(job, placement) // NOMINAL
        if not self._is_uniform:
            kinds = self.topology.type_of_gpu
            speed = speed * min(kinds[gpu].speed_ppm for gpu in placement.gpus()) // NOMINAL
        return max(1, speed)

    def _by_span(self, model: str, count: int, span: int) -> int:
        world, levels = self.world, self.topology.levels
        best = world.span_factor(model, levels[self._best_span(count)], self.seed)
        return world.span_factor(model, levels[span], self.seed) * NOMINAL // best

    def _best_span(self, count: int) -> int:
        """The innermost level, `node` at most, with a domain of that many GPUs."""
        topology = self.topology
        for level in range(topology.node_level, -1, -1):
            sizes: dict[int, int] = {}
            for node in topology.nodes:
                domain = node.domains[level]
                sizes[domain] = sizes.get(domain, 0) + node.gpus
            if max(sizes.values()) >= count:
                return level
        return 0

    def _by_shape(self, job: Job, placement: Placement) -> int:
        demand = job.demand
        for split in demand.splits:
            if len(split.parts) == len(placement.slices) and split.speed_ppm is not None:
                return split.speed_ppm
        return self.world.scaling(len(placement.slices), demand.nominal.count)

    def slowdown(
        self, job: Job, placement: Placement, others: Sequence[tuple[Job, Placement]]
    ) -> int:
        """How much neighbours on shared GPUs leave of the speed alone, in parts per million.

        MPS: max(1, sum of utilisations) on the busiest GPU; time-slicing: one job at a time
        (algorithms.md section 16, models M2 and M1).
        """
        if not self.world.interferes or not others or placement.sharing is Sharing.EXCLUSIVE:
            return NOMINAL
        worst = NOMINAL
        for piece in placement.slices:
            beside = [o for o in others if any(s.gpu == piece.gpu for s in o[1].slices)]
            if placement.sharing is Sharing.TIME:
                left = NOMINAL // (1 + len(beside))
            else:
                total = _utilisation(job, placement) + sum(_utilisation(*o) for o in beside)
                left = NOMINAL * NOMINAL // max(NOMINAL, total)
            worst = min(worst, left)
        return worst


def _utilisation(job: Job, placement: Placement) -> int:
    """Part of a GPU a job keeps busy: measured, else its share."""
    if job.gpu_util_ppm is not None:
        return job.gpu_util_ppm
    return placement.slices[0].share * NOMINAL // WHOLE


IDEAL = World(name="ideal", has_failures=False, interferes=False)

DEFAULT = World(
    name="default",
    # Philly's ResNet-50: 98.0 against 114.8 images/s on another server of the rack (section 1);
    # between racks: the same again, as no source measured it.
    spans={"rack": 853_700, "fabric": 728_800, "cluster": 728_800},
    # Tiresias, Figure 3: random against consolidated placement; gains are not credited.
    models={
        "vgg19": {"rack": 720_000, "fabric": 614_700, "cluster": 614_700},
        "vgg16": {"rack": 730_000, "fabric": 623_200, "cluster": 623_200},
        "vgg11": {"rack": 770_000, "fabric": 657_300, "cluster": 657_300},
        "alexnet": {"rack": 800_000, "fabric": 683_000, "cluster": 683_000},
        "resnet152": {"rack": NOMINAL, "fabric": NOMINAL, "cluster": NOMINAL},
        "resnet101": {"rack": NOMINAL, "fabric": NOMINAL, "cluster": NOMINAL},
        "resnet50": {"rack": NOMINAL, "fabric": NOMINAL, "cluster": NOMINAL},
        "inception4": {"rack": NOMINAL, "fabric": NOMINAL, "cluster": NOMINAL},
        "inception3": {"rack": NOMINAL, "fabric": NOMINAL, "cluster": NOMINAL},
        "googlenet": {"rack": NOMINAL, "fabric": NOMINAL, "cluster": NOMINAL},
    },
    # 9.2 GiB leave an H200 in 4.1-5.0 s and return in 1.5 s (gpu-facts.md); with starting the
    # program anew, 30 s per preemption in all, as in policy-lab.md.
    switching=Switching(
        suspend_ms=5 * SECOND,
        resume_ms=25 * SECOND,
        thaw_ms=1_500,
        resize_ms=30 * SECOND,
    ),
    # Median gain of a doubling in Gavel's consolidated tables: 1.737 (168 pairs, three GPU types).
    doubling_ppm=868_000,
)
