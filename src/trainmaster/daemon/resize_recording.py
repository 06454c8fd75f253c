"""Says of each resize from how many devices to how many it is, by which policy, and for which jobs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from trainmaster.core.state import State
from trainmaster.daemon.live_job import LiveJob
from trainmaster.model import actions as a
from trainmaster.model.job import Run


def note_sizes(
    orders: Iterable[a.Order], jobs: Mapping[str, LiveJob], state: State, policy: str
) -> Mapping[Run, Mapping[str, object]]:
    """What the stories of these resizes say; the state is the one after the step that ordered them."""
    found: dict[Run, Mapping[str, object]] = {}
    for order in orders:
        live, placement = jobs.get(order.run.job), getattr(order, "placement", None)
        if live is None or placement is None:
            continue
        before, live.size = live.size, len(placement.slices)
        if isinstance(order, a.Reshape) and before:
            room_for = [job for job in state.awaited.get(order.run, ()) if job != live.id]
            named = [f"{job} ({jobs[job].name})" if job in jobs else job for job in room_for]
            said: dict[str, object] = {"from": before, "to": live.size, "by": policy}
            found[order.run] = said | ({"for": named} if named else {})
    return found
