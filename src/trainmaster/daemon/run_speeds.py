"""How fast a run is, relative to its job's nominal speed: assumed until it is measured, then by its reports.

Before a job has run on a type of device, the speed of that type is assumed. What it reports there is compared
with the best that it has reported at its nominal size, on devices of the type where it was measured first:
so a job that is nearly as fast on a slower type counts as that.
"""

from __future__ import annotations

from dataclasses import replace

from trainmaster.core.state import JobRecord
from trainmaster.daemon.job_history import JobHistory
from trainmaster.daemon.live_job import LiveJob
from trainmaster.model.engine_reports import Progressed
from trainmaster.model.job import Demand
from trainmaster.model.placement import Placement
from trainmaster.model.topology import GpuType, Topology
from trainmaster.model.units import NOMINAL

NOTICEABLE_PART = 10
"""A tenth less or more than the speed before: smaller differences are ignored, as reports are noisy."""


def assumed_speed(record: JobRecord, topology: Topology | None) -> int:
    """Its speed until that is measured: in proportion to its devices, and by their types."""
    if record.placement is None:
        return NOMINAL
    in_proportion = _in_proportion(record.demand, record.placement)
    kinds = _kinds(record.placement, topology)
    slowest = min((record.speed_on(kind) for kind in kinds), default=NOMINAL)
    return max(1, in_proportion * slowest // NOMINAL)


def assumed_speed_on(demand: Demand, placement: Placement, topology: Topology) -> int:
    """The same of a job that has not run under this store."""
    slowest = min(kind.speed_ppm for kind in _kinds(placement, topology))
    return max(1, _in_proportion(demand, placement) * slowest // NOMINAL)


def is_noticeable(speed_ppm: int, before_ppm: int) -> bool:
    return abs(speed_ppm - before_ppm) * NOTICEABLE_PART > max(speed_ppm, before_ppm)


def measured_speed(
    live: LiveJob, record: JobRecord, said: Progressed, topology: Topology | None = None
) -> int | None:
    """Its reported speed, relative to the best that it has reported at its nominal size.

    In samples, or, where its steps are only counted, in steps. A job whose nominal size is one device may be
    compared with what was measured of its program there, where all devices are equally fast. What a gang
    reports that is spread over more nodes than it needs, or over several types, is nothing to compare with:
    its speed would look normal.
    """
    by_steps = not said.samples_per_s
    rate = said.steps_per_s if by_steps else said.samples_per_s
    if not rate or record.placement is None:
        return None
    best = (live.history.steps_per_s if by_steps else live.history.samples_per_s) or 0.0
    is_uniform = topology is None or topology.is_uniform
    if not best and is_uniform:
        best = _profiled_rate(record, by_steps=by_steps)
    kinds = {kind.name for kind in _kinds(record.placement, topology)}
    is_comparable = not best or is_uniform or kinds == {live.history.rate_type}
    is_nominal = len(record.placement.slices) == record.demand.nominal.count
    is_alike = is_uniform or len(kinds) == 1
    is_together = is_alike and _is_consolidated(record.placement, topology)
    if is_nominal and rate > best and is_together and is_comparable:
        best = rate
        kind = kinds.pop() if len(kinds) == 1 else ""
        live.history = (
            replace(live.history, steps_per_s=best, rate_type=kind)
            if by_steps
            else replace(live.history, samples_per_s=best, rate_type=kind)
        )
    return max(1, round(rate / best * best_speed(live.history, topology))) if best else None


def best_speed(history: JobHistory, topology: Topology | None) -> int:
    """The speed that goes with the best that a job has reported: that of the type of device where it did."""
    return NOMINAL if topology is None else topology.speed_by_type.get(history.rate_type, NOMINAL)


def _in_proportion(demand: Demand, placement: Placement) -> int:
    if not demand.is_elastic:
        return NOMINAL
    return NOMINAL * len(placement.slices) // demand.nominal.count


def _kinds(placement: Placement, topology: Topology | None) -> set[GpuType]:
    """The types of its devices."""
    return set() if topology is None else {topology.type_of_gpu[gpu] for gpu in placement.gpus()}


def _profiled_rate(record: JobRecord, *, by_steps: bool) -> float:
    """Steps or samples per second on one device, of a job that has one at its nominal size; 0: not known."""
    profile = record.profile
    if profile is None or not profile.step_us or record.demand.nominal.count != 1:
        return 0.0
    if by_steps:  # with more devices a step may have more samples
        return 0.0 if record.demand.is_elastic else 1e6 / profile.step_us
    return profile.batch * 1e6 / profile.step_us


def _is_consolidated(placement: Placement, topology: Topology | None) -> bool:
    """Whether it is on as few nodes as so many devices need."""
    if topology is None or len(placement.nodes) == 1:
        return True
    return len(placement.nodes) <= -(-len(placement.slices) // topology.largest_node)
