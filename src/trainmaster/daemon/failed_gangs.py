"""Gangs on several nodes that failed in a way that one of the nodes may have caused."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from trainmaster.core.state import State
from trainmaster.daemon.live_job import LiveJob
from trainmaster.daemon.report_events import LoggedEvent
from trainmaster.failures.reason_table import Accuses, ReasonTable
from trainmaster.model import events as e
from trainmaster.model.job import Run
from trainmaster.model.launch_spec import LaunchSpec


@dataclass(frozen=True, slots=True)
class FailedGang:
    """A gang whose failure one of its nodes may have caused."""

    run: Run
    nodes: tuple[str, ...]
    why: str
    """What happened, in a few words."""
    recipe: LaunchSpec | None = None
    """What the job was started from."""


class FailedGangs:
    """Collected from the events that are about to be taken in, while placements are known."""

    def __init__(
        self,
        state: Callable[[], State],
        jobs: Mapping[str, LiveJob],
        table: Callable[[], ReasonTable],
    ) -> None:
        self._state, self._jobs, self._table = state, jobs, table
        self._found: list[FailedGang] = []

    def note(self, events: Iterable[LoggedEvent]) -> None:
        for logged in events:
            event = logged.event
            if isinstance(event, e.RunFailed) and event.failure is not None:
                row = self._table().of(event.failure.reason)
                nodes = self._nodes_of(event.run)
                if row.accuses is Accuses.NODES and len(nodes) > 1:
                    live = self._jobs.get(event.run.job)
                    recipe = None if live is None else live.recipe
                    self._found.append(FailedGang(event.run, nodes, row.title, recipe))

    def take(self) -> Sequence[FailedGang]:
        found, self._found = self._found, []
        return found

    def _nodes_of(self, run: Run) -> tuple[str, ...]:
        state = self._state()
        record = state.jobs.get(run.job)
        if record is None or record.run != run or record.placement is None:
            return ()
        numbers = sorted({node for node, _, _, _, _ in record.placement.slices})
        return tuple(state.topology.nodes[node].name for node in numbers)
