"""How much host memory a run had for each of its devices, by what its engine says at its end."""

from __future__ import annotations

from trainmaster.daemon.live_job import LiveJob
from trainmaster.model.engine_reports import Ended
from trainmaster.model.launch_spec import Ranks
from trainmaster.model.placement import Placement
from trainmaster.model.units import ceil_div


def of_each_device(said: Ended, live: LiveJob, placement: Placement | None) -> int | None:
    """The part of what it had that each of its devices stands for, on the node where it had the fewest.

    A gang with a rank for each device has a process for each of them, and so has a launcher, in one rank. Of
    two figures the larger one counts: one leaves other processes out, one may miss a short peak.
    """
    has_rank_for_each = live.recipe.ranks is Ranks.PER_GPU
    has_process_for_each = has_rank_for_each or bool(live.recipe.launcher)
    known = (
        (said.peak_memory, has_process_for_each),
        (said.rank_memory, has_rank_for_each),
    )
    fewest = 1 if placement is None else _fewest_devices(placement)
    parts = [peak if is_for_each else ceil_div(peak, fewest) for peak, is_for_each in known if peak]
    return max(parts, default=None)


def _fewest_devices(placement: Placement) -> int:
    nodes = [piece.node for piece in placement.slices]
    return min(map(nodes.count, nodes))
