"""Estimates what a gang loses when its GPUs are spread, or when another gang is on its node.

Published speeds by span, number of nodes (perf/locality.py) and neighbours (perf/network_contention.py), or
those that the profile of its program predicts over measured links (estimators/throughput.py), are corrected
by observation. Every few minutes, during a pass that is made anyway, the speed of each gang is recorded, once
per run; one that nobody has measured says nothing. Gangs placed as close as possible give the normal speed of
their model, spread gangs the cost of distance, and small gangs that share a node the cost of a neighbour.
Until enough runs of a model have been observed, runs of all models count.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from trainmaster.core.lifecycle import Phase
from trainmaster.core.state import JobRecord
from trainmaster.core.view import View
from trainmaster.estimators.allocation import Allocation, GpuCount
from trainmaster.estimators.throughput import Estimator
from trainmaster.model.codec import stored_as
from trainmaster.model.job import Demand, Job
from trainmaster.model.placement import Placement, Sharing
from trainmaster.model.plan import FrozenMap
from trainmaster.model.profile import Profile
from trainmaster.model.topology import Topology
from trainmaster.model.units import NOMINAL
from trainmaster.perf.default_parameters import LOCALITY, NEIGHBOURS
from trainmaster.perf.model_zoo import table_name
from trainmaster.perf.network_contention import Wire
from trainmaster.perf.perf_model import PerfModel, Speeds

PRIOR_RUNS = 1
"""Weight of the prior, in observed runs."""
HALVED_AFTER_RUNS = 64
"""After this many runs, earlier ones count half."""
LEAST_LOSS = 15_000
"""Minimum predicted loss wherever an unknown model would lose anything."""
MOST_LOSS = 950_000
"""Largest predicted loss."""


def upgraded(body: Mapping[str, Any]) -> Mapping[str, Any]:
    """Renames a field of older stores."""
    return {("predicted" if name == "foretold" else name): held for name, held in body.items()}


@stored_as("locality.Penalty", upgraded)
@dataclass(frozen=True, slots=True)
class Penalty:
    """Sums over observed runs; speeds and losses in parts per million."""

    near: int = 0
    """Number of runs placed as close as possible ..."""
    near_speed: int = 0
    apart: int = 0
    """... and of spread runs."""
    predicted: int = 0
    lost: int = 0

    def with_near(self, speed: int) -> Penalty:
        kept = self._aged()
        return replace(kept, near=kept.near + 1, near_speed=kept.near_speed + speed)

    def with_spread(self, predicted: int, lost: int) -> Penalty:
        kept = self._aged()
        predicted, lost = kept.predicted + predicted, kept.lost + lost
        return replace(kept, apart=kept.apart + 1, predicted=predicted, lost=lost)

    def _aged(self) -> Penalty:
        names: tuple[str, ...] = ("near", "near_speed") if self.near >= HALVED_AFTER_RUNS else ()
        if self.apart >= HALVED_AFTER_RUNS:
            names += ("apart", "predicted", "lost")
        return replace(self, **{name: getattr(self, name) // 2 for name in names})

    def near_ppm(self) -> int:
        """Mean speed of runs placed as close as possible; nominal until some were observed."""
        return (self.near_speed + PRIOR_RUNS * NOMINAL) // (self.near + PRIOR_RUNS)

    def correction_ppm(self, prior_ppm: int = NOMINAL) -> int:
        """Factor by which predicted losses are multiplied."""
        if not self.predicted:
            return prior_ppm
        seen = self.lost * self.apart * NOMINAL // self.predicted
        return (seen + PRIOR_RUNS * prior_ppm) // (self.apart + PRIOR_RUNS)


class PublishedLosses:
    """Published losses on one topology, and those that profiles predict; caches only pure results."""

    def __init__(self, topology: Topology) -> None:
        self.topology = topology
        self._speeds = Speeds(PerfModel("published", locality=LOCALITY), topology)
        self._estimator = Estimator(topology)
        self._measured = frozenset(level for level, _ in topology.links)

    def loss(self, model: str, demand: Demand, count: int, span: int, nodes: int) -> int:
        """Published loss of a gang placed there, relative to the closest placement."""
        unknown = NOMINAL - self._speeds.placed("", demand, count, span, nodes)
        own = NOMINAL - self._speeds.placed(model, demand, count, span, nodes)
        return max(own, LEAST_LOSS) if unknown or own else 0

    def predicts(self, profile: Profile | None, span: int) -> bool:
        """Whether the loss there follows from a profile: the links that it crosses have been measured."""
        return (
            profile is not None
            and profile.is_predictive
            and span < self.topology.node_level
            and self.topology.levels[span] in self._measured
        )

    def of_profile(self, job: Job, profile: Profile, count: int, span: int, nodes: int) -> int:
        """What the timeline predicts for a gang spread evenly over these nodes."""
        spread = Allocation(
            tuple(count // nodes + (n < count % nodes) for n in range(nodes)),
            self.topology.levels[span],
            (GpuCount("gpu", NOMINAL, count),),
        )
        near = self._estimator.best(count, job.demand.gpu_type).at_nominal_speed()
        slow, fast = (self._estimator.speed(job, profile, each) for each in (spread, near))
        return max(LEAST_LOSS, NOMINAL - slow * NOMINAL // fast)

    def neighbour_loss(self, model: str) -> int:
        """Published loss of a gang to another gang on its node."""
        return max(LEAST_LOSS, NOMINAL - NEIGHBOURS.remaining_speed(model, Wire.SERVER, 2))

    def fewest_nodes(self, demand: Demand, count: int) -> int:
        return self._speeds.nearest(demand, count)[1]


INFORMATIVE_LOSS = 50_000
"""A predicted loss below this says nothing about other models or placements."""
LEAST_CHANGE_PART = 4
"""A correction is updated when it has changed by more than a quarter."""
LEAST_CORRECTION = NOMINAL // 32
"""A correction below this counts as 0."""

PenaltyKey = tuple[str, ...]
"""Model (by its table name) and GPU type; plus the situation, if it is not plain distance."""
SMALL_LOSS = "quiet"
"""Spread, with a very small predicted loss."""
ALONE, BESIDE = "alone", "beside"
"""Small gangs on one node: alone there, or with other gangs."""
ANY: PenaltyKey = ()
ANY_BESIDE: PenaltyKey = (BESIDE,)


@stored_as("locality.Observations")
@dataclass(frozen=True, slots=True)
class LocalityObservations:
    """Observed penalties of distance and of neighbours, and the corrections derived from them."""

    felt: FrozenMap[PenaltyKey, Penalty] = field(default_factory=FrozenMap)
    believed: FrozenMap[PenaltyKey, int] = field(default_factory=FrozenMap)
    """Corrections: predicted losses are multiplied by these, in parts per million."""
    witnesses: int = 0
    """Number of spread runs behind the corrections."""
    looked_at: FrozenMap[int, int] = field(default_factory=FrozenMap)
    """Current runs that have been observed: attempt by job number."""
    next_look_ms: int = 0


NOTHING_SEEN = LocalityObservations()


class LocalityEstimator:
    """Losses of jobs at placements: published for a topology, corrected by observations."""

    def __init__(self, view: View, published: PublishedLosses, seen: LocalityObservations) -> None:
        self.view = view
        self.topology = view.topology
        self.published = published
        self._corrections = seen.believed

    # -- answering ---------------------------------------------------------------------------------

    def loss(self, record: JobRecord, placement: Placement) -> int:
        """Part of its speed that the job is expected to lose at this placement."""
        return self._corrected(self._predicted_at(record, placement), self._kind(record, placement))

    def loss_at(self, record: JobRecord, span: int, nodes: int) -> int:
        """The same for a gang on this many nodes of one domain, on the worst GPU type that it may use."""
        demand = record.demand
        predicted = self._predicted(record, demand.nominal.count, span, nodes)
        name = table_name(record.job.model)
        kinds = [kind.name for kind in self.topology.types if demand.allows(kind.name)]
        return max((self._corrected(predicted, (name, kind)) for kind in kinds), default=0)

    def profile_key(self, record: JobRecord) -> Hashable:
        """What its losses depend on, beside its demand and its model."""
        profile = record.profile
        if profile is None or not any(
            self.published.predicts(profile, span) for span in range(self.topology.node_level)
        ):
            return None
        return profile.step_us, profile.batch, profile.sync_bytes

    def neighbour_loss(self, record: JobRecord) -> int:
        """Part of its speed that the job is expected to lose to another gang on its node."""
        name, anybody = table_name(record.job.model), self._corrections.get(ANY_BESIDE, NOMINAL)
        types = self.topology.types
        known = max(self._corrections.get((name, kind.name, BESIDE), anybody) for kind in types)
        return self.published.neighbour_loss(record.job.model) * known // NOMINAL

    @cached_property
    def training_gangs(self) -> list[JobRecord]:
        """Running gangs with the GPUs they asked for, in order of submission."""
        found = {
            each.seq: each
            for node in range(len(self.topology.nodes))
            for each in self.view.residents(node)
            if _trains(each)
        }
        return [found[seq] for seq in sorted(found)]

    def gangs_on(self, node: int) -> list[JobRecord]:
        return [each for each in self.view.residents(node) if _holds_several(each)]

    def _corrected(self, predicted: int, kind: PenaltyKey) -> int:
        if predicted < INFORMATIVE_LOSS:
            correction = self._corrections.get((*kind, SMALL_LOSS), NOMINAL)
        else:
            correction = self._corrections.get(kind, self._corrections.get(ANY, NOMINAL))
        return min(MOST_LOSS, predicted * correction // NOMINAL)

    def _predicted_at(self, record: JobRecord, placement: Placement) -> int:
        span, count = placement.span, len(placement.slices)
        nodes = 1 if span >= self.topology.node_level else len(placement.nodes)
        return self._predicted(record, count, span, nodes)

    def _predicted(self, record: JobRecord, count: int, span: int, nodes: int) -> int:
        """By its profile where links have been measured, else as published; 0: it cannot be nearer."""
        published = self.published.loss(record.job.model, record.demand, count, span, nodes)
        profile = record.profile
        if not published or profile is None or not self.published.predicts(profile, span):
            return published
        return self.published.of_profile(record.job, profile, count, span, nodes)

    def _kind(self, record: JobRecord, placement: Placement) -> PenaltyKey:
        kind = self.topology.type_of_gpu[placement.slices[0].gpu]
        return table_name(record.job.model), kind.name

    # -- looking -----------------------------------------------------------------------------------

    def observed(self, seen: LocalityObservations, next_look_ms: int) -> LocalityObservations:
        """The observations with those of all runs that had not been observed yet."""
        gangs = [record for record in self.training_gangs if not record.is_speed_assumed]
        known = seen.looked_at
        new = [record for record in gangs if known.get(record.seq) != record.attempt]
        if not new:
            return replace(seen, next_look_ms=next_look_ms)
        penalties = dict(seen.felt)
        for record in new:
            assert record.placement is not None
            self._observe(penalties, record, record.placement)
        looked_at = FrozenMap({record.seq: record.attempt for record in gangs})
        corrections = _updated_corrections(penalties, seen.believed)
        spread_runs = (
            seen.witnesses if corrections is seen.believed else penalties.get(ANY, Penalty()).apart
        )
        return LocalityObservations(
            FrozenMap(penalties), corrections, spread_runs, looked_at, next_look_ms
        )

    def _observe(
        self, penalties: dict[PenaltyKey, Penalty], record: JobRecord, placement: Placement
    ) -> None:
        kind, speed = self._kind(record, placement), record.speed_ppm
        own = penalties.get(kind, Penalty())
        predicted = self._predicted_at(record, placement)
        if not predicted:
            penalties[kind] = own.with_near(speed)
            self._observe_neighbours(penalties, record, placement, kind)
            return
        lost = max(0, NOMINAL - speed * NOMINAL // own.near_ppm())
        if predicted >= INFORMATIVE_LOSS:
            _add(penalties, kind, predicted, lost)
            _add(penalties, ANY, predicted, lost)
        else:
            _add(penalties, (*kind, SMALL_LOSS), predicted, lost)

    def _observe_neighbours(
        self,
        penalties: dict[PenaltyKey, Penalty],
        record: JobRecord,
        placement: Placement,
        kind: PenaltyKey,
    ) -> None:
        node = placement.slices[0].node
        is_whole_node = len(placement.slices) == self.topology.nodes[node].gpus
        if is_whole_node or len(placement.nodes) > 1:
            return
        alone = penalties.get((*kind, ALONE), Penalty())
        if len(self.gangs_on(node)) == 1:
            penalties[*kind, ALONE] = alone.with_near(record.speed_ppm)
            return
        predicted = self.published.neighbour_loss(record.job.model)
        lost = max(0, NOMINAL - record.speed_ppm * NOMINAL // alone.near_ppm())
        _add(penalties, (*kind, BESIDE), predicted, lost)
        if predicted >= INFORMATIVE_LOSS:
            _add(penalties, ANY_BESIDE, predicted, lost)


def _holds_several(record: JobRecord) -> bool:
    return record.placement is not None and len(record.placement.slices) > 1


def _add(penalties: dict[PenaltyKey, Penalty], kind: PenaltyKey, predicted: int, lost: int) -> None:
    penalties[kind] = penalties.get(kind, Penalty()).with_spread(predicted, lost)


def _trains(record: JobRecord) -> bool:
    """Whether this gang runs exclusively on as many GPUs as it asked for."""
    placement, count = record.placement, record.demand.nominal.count
    return (
        count > 1
        and record.phase is Phase.RUNNING
        and record.since_ms is not None
        and placement is not None
        and placement.sharing is Sharing.EXCLUSIVE
        and len(placement.slices) == count
    )


def _updated_corrections(
    penalties: Mapping[PenaltyKey, Penalty], before: FrozenMap[PenaltyKey, int]
) -> FrozenMap[PenaltyKey, int]:
    """The corrections, updated where they have changed enough."""
    changed: dict[PenaltyKey, int] = {}
    for kind, seen in penalties.items():
        if seen.apart:
            found = seen.correction_ppm(_of_other_models(penalties, kind))
            correction, old = found if found >= LEAST_CORRECTION else 0, before.get(kind, NOMINAL)
            if abs(correction - old) * LEAST_CHANGE_PART > max(correction, old):
                changed[kind] = correction
    return before.updated(changed) if changed else before


def _of_other_models(penalties: Mapping[PenaltyKey, Penalty], kind: PenaltyKey) -> int:
    """The prior of a model: the correction over all models in the same situation."""
    if kind in (ANY, ANY_BESIDE) or SMALL_LOSS in kind:
        return NOMINAL
    others = ANY_BESIDE if BESIDE in kind else ANY
    return penalties.get(others, Penalty()).correction_ppm()
