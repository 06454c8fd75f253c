"""The performance model of a simulation: speed by placement and by other jobs, costs, failures.

`IDEAL` has no locality penalty, no interference, no switch cost and no failures. `DEFAULT` follows
published and measured figures (docs/perf.md gives each one's source). A file overrides any.

The speed of a run = nominal x locality x GPU type x shape x interference, each in parts per million.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache

from trainmaster.model.job import Demand, Job
from trainmaster.model.placement import Placement, Sharing
from trainmaster.model.topology import CPU_TYPE, GpuType, Topology
from trainmaster.model.units import HOUR, MINUTE, NOMINAL, WHOLE
from trainmaster.perf import default_parameters as published
from trainmaster.perf.gpu_interference import SharedGpu, occupant_on
from trainmaster.perf.locality import Locality
from trainmaster.perf.model_zoo import table_name
from trainmaster.perf.network_contention import NetworkContention, Wire
from trainmaster.perf.preemption_cost import PreemptionCost
from trainmaster.perf.scaling import Elasticity

__all__ = ["DEFAULT", "IDEAL", "FailureModel", "Speeds", "PreemptionCost", "PerfModel"]


@dataclass(frozen=True, slots=True)
class FailureModel:
    """How often nodes fail, when that is noticed and repaired, and how much work it costs."""

    mtbf_ms: int | None = None
    """Mean time between failures of one node; None = never."""
    repair_ms: int = 4 * HOUR
    """From when the failure was noticed."""
    detection_ms: int = 0
    """How long a failed node goes unnoticed: its runs make no progress and hold their GPUs."""
    checkpoint_ms: int = 30 * MINUTE
    """Runs save this often: a crash loses what came after."""


@dataclass(frozen=True, slots=True)
class PerfModel:
    """Everything that is true of speeds, costs and failures in a simulation."""

    name: str
    locality: Locality = field(default_factory=Locality)
    gpu_speeds: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """By model and GPU type, where measured; otherwise the type's own relative speed counts."""
    elasticity: Elasticity = field(default_factory=Elasticity)
    interferes: bool = True
    """Whether jobs that share a GPU or a wire slow each other down."""
    shared_gpu: SharedGpu = field(default_factory=SharedGpu)
    neighbours: NetworkContention = field(default_factory=NetworkContention)
    preemption_cost: PreemptionCost = field(default_factory=PreemptionCost)
    node_failures: FailureModel = FailureModel()
    split_ppm: int = NOMINAL
    """Speed of a model split over two GPUs, relative to one that holds all of it."""
    has_failures: bool = True
    """Whether the trace's failed attempts and final statuses happen."""
    profiling_ms: int = 0
    """What it takes to measure an elastic job on several sizes, on its GPUs, ahead of its first run."""

    def scaling(self, count: int, nominal: int, model: str = "") -> int:
        """Speed of an elastic job on `count` GPUs relative to its nominal number."""
        speedup = self.elasticity.speedup
        return max(1, speedup(model, count) * NOMINAL // speedup(model, nominal))

    def speedups_of(self, job: Job) -> tuple[tuple[int, int], ...]:
        """(GPUs, speed in parts per million of one GPU) at best placement, for every count it accepts."""
        counts = range(job.demand.min_count, job.demand.max_count + 1)
        return tuple((count, self.elasticity.speedup(job.model, count)) for count in counts)


class Speeds:
    """Speeds of placements on one topology; caches only pure results."""

    def __init__(self, perf: PerfModel, topology: Topology, seed: int = 0) -> None:
        self.perf = perf
        self.topology = topology
        self.seed = seed
        self._is_near = perf.locality == Locality()
        self._by_place: dict[tuple[str, str | None, int, int, int], int] = {}
        self._best: dict[tuple[str | None, int], tuple[int, int]] = {}
        self._remaining_speed = cache(perf.neighbours.remaining_speed)
        self._of_type = cache(self._speed_on)
        named = {table_name(kind.name) for kind in topology.types}
        self._is_uniform = all(kind.speed_ppm == NOMINAL for kind in topology.types) and not any(
            named & set(table) for table in perf.gpu_speeds.values()
        )
        self._switch_of_gpu, self._switches = _switches(topology)

    # -- alone -----------------------------------------------------------------------------------

    def alone(self, job: Job, placement: Placement) -> int:
        """Speed without other jobs beside it, relative to the job's best placement on nominal GPUs."""
        count, demand = len(placement.slices), job.demand
        speed = NOMINAL
        if count > 1 and not self._is_near:
            span = placement.span
            nodes = 1 if span >= self.topology.node_level else len(placement.nodes)
            speed = self.placed(job.model, demand, count, span, nodes)
        if count != demand.nominal.count:
            speed = speed * self._of_shape(job, placement) // NOMINAL
        if not self._is_uniform:
            speed = speed * self._of_types(job.model, placement) // NOMINAL
        return max(1, speed)

    def placed(self, model: str, demand: Demand, count: int, span: int, nodes: int) -> int:
        """Locality: a gang's speed on these GPUs and nodes, relative to its best placement."""
        key = (model, demand.gpu_type, count, span, nodes)
        known = self._by_place.get(key)
        if known is None:
            known = self._by_place[key] = self._of_place(model, demand, count, span, nodes)
        return known

    def _of_place(self, model: str, demand: Demand, count: int, span: int, nodes: int) -> int:
        locality, levels = self.perf.locality, self.topology.levels
        nearest, fewest = self.nearest(demand, count)
        best = locality.at_span(model, levels[nearest], self.seed)
        here = locality.at_span(model, levels[span], self.seed)
        if span >= self.topology.node_level:
            return min(NOMINAL, here * NOMINAL // best)
        if fewest > 1:
            wide = locality.at_width(model, nodes, fewest)
            return min(NOMINAL, here * wide // best)
        counted = locality.at_nodes(model, count, nodes)
        if counted is not None:
            first = levels[self.topology.node_level - 1]
            here = min(NOMINAL, here * NOMINAL // locality.at_span(model, first, self.seed))
            here = here * counted // NOMINAL
        across_node = locality.at_span(model, "node", self.seed)
        return min(NOMINAL, here * across_node // best)

    def nearest(self, demand: Demand, count: int) -> tuple[int, int]:
        """The innermost level with a domain of that many GPUs for such jobs, and the fewest nodes."""
        key = (demand.gpu_type, count)
        known = self._best.get(key)
        if known is None:
            known = self._best[key] = self._find_nearest(demand, count)
        return known

    def _find_nearest(self, demand: Demand, count: int) -> tuple[int, int]:
        topology = self.topology
        nodes = [node for node in topology.nodes if demand.allows(node.type.name)]
        fewest, left = 0, count
        for size in sorted((node.gpus for node in nodes), reverse=True):
            if left > 0:
                fewest, left = fewest + 1, left - size
        for inner in range(len(topology.levels) - 2, topology.node_level, -1):
            islands = (node.island_levels[inner - topology.node_level - 1] for node in nodes)
            if any(len(island) >= count for level in islands for island in level):
                return inner, 1
        for level in range(topology.node_level, -1, -1):
            sizes: dict[int, int] = {}
            for node in nodes:
                domain = node.domains[level]
                sizes[domain] = sizes.get(domain, 0) + node.gpus
            if max(sizes.values(), default=0) >= count:
                return level, fewest
        return 0, fewest

    def _of_shape(self, job: Job, placement: Placement) -> int:
        demand = job.demand
        for split in demand.splits:
            if len(split.parts) == len(placement.slices) and split.speed_ppm is not None:
                return split.speed_ppm
        return self.perf.scaling(len(placement.slices), demand.nominal.count, job.model)

    def _of_types(self, model: str, placement: Placement) -> int:
        """The slowest GPU sets the pace."""
        kinds = self.topology.type_of_gpu
        return min(self._of_type(model, kind) for kind in {kinds[gpu] for gpu in placement.gpus()})

    def _speed_on(self, model: str, kind: GpuType) -> int:
        table = self.perf.gpu_speeds.get(table_name(model), {})
        return table.get(table_name(kind.name), kind.speed_ppm)

    # -- beside others ---------------------------------------------------------------------------

    def slowdown(
        self, job: Job, placement: Placement, others: Sequence[tuple[Job, Placement]]
    ) -> int:
        """Its speed beside the other jobs on its GPUs, in parts per million of its speed alone."""
        if not self.perf.interferes or not others or placement.sharing is Sharing.EXCLUSIVE:
            return NOMINAL
        law, worst = self.perf.shared_gpu, NOMINAL
        for gpu in placement.gpus():
            mine, *beside = (occupant_on(gpu, *each) for each in ((job, placement), *others))
            assert mine is not None
            company = [each for each in beside if each is not None]
            worst = min(worst, law.remaining_speed(mine, company, placement.sharing))
        return max(1, worst)

    def wires(self, placement: Placement) -> tuple[int, ...]:
        """What a gang communicates over: its switches inside a node, else NICs; nothing for one GPU."""
        slices = placement.slices
        topology = self.topology
        if len(slices) < 2 or topology.type_of_gpu[slices[0].gpu].name == CPU_TYPE:
            return ()
        if placement.span < topology.node_level:
            return tuple(self._switches + node for node in placement.nodes)
        of_gpu = self._switch_of_gpu
        return tuple(dict.fromkeys(of_gpu[piece.gpu] for piece in slices))

    def network_slowdown(self, job: Job, placement: Placement, gangs: int) -> int:
        """Its speed among this many gangs on its most crowded wire, itself included, relative to alone."""
        wire = Wire.NIC if placement.span < self.topology.node_level else Wire.SERVER
        return self._remaining_speed(job.model, wire, gangs)

    # -- memory ----------------------------------------------------------------------------------

    def memory_of(self, placement: Placement) -> int:
        """Bytes on its fullest GPU: as stated, else in proportion to the share."""
        kinds = self.topology.type_of_gpu
        return max(
            memory or kinds[gpu].memory * share // WHOLE
            for _, gpu, share, memory, _ in placement.slices
        )

    def moving(self, placement: Placement) -> int:
        """Bytes that each of its GPUs moves out or in, where that takes time; else 0."""
        cost = self.perf.preemption_cost
        if cost.save_bytes_s is None and cost.load_bytes_s is None:
            return 0
        return self.memory_of(placement)


def _switches(topology: Topology) -> tuple[tuple[int, ...], int]:
    """For each GPU the number of its innermost island, and how many there are in all."""
    found: list[int] = []
    count = 0
    for node in topology.nodes:
        innermost = node.island_levels[-1] if node.island_levels else (tuple(range(node.gpus)),)
        for island in innermost:
            found.extend([count] * len(island))
            count += 1
    return tuple(found), count


IDEAL = PerfModel(name="ideal", has_failures=False, interferes=False)

DEFAULT = PerfModel(
    name="default",
    locality=published.LOCALITY,
    elasticity=published.ELASTICITY,
    shared_gpu=published.SHARED_GPU,
    neighbours=published.NEIGHBOURS,
    preemption_cost=published.PREEMPTION_COST,
    node_failures=FailureModel(detection_ms=published.DETECTION_MS),
    split_ppm=published.SPLIT_PPM,
)
