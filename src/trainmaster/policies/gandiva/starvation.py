"""Jobs that have waited too long go first (`starve_after_s`): a turn at once, on any server.

Runs yield to them however short their own turn was. Where some may not yield yet (protected, starving
themselves, being measured or still starting), idle GPUs there are kept until they may: smaller
jobs would take them one by one, and a wide one would never find all of its GPUs.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from trainmaster.core.state import JobRecord
from trainmaster.mechanisms.preemption_guards import STARVING
from trainmaster.model.placement import Slice
from trainmaster.placement.gang import bits
from trainmaster.policies.gandiva.affinity import Home
from trainmaster.policies.gandiva.server_index import takes_turns
from trainmaster.policies.gandiva.time_slicing import MOST_TURNS, TimeSlicing


@dataclass(slots=True)
class StarvingJobs:
    """The starving jobs of one pass."""

    slicing: TimeSlicing
    again_at: int | None = None
    """When more runs may yield, or more starving jobs can be looked at."""
    has_kept: bool = False
    """Whether GPUs are kept for a job until others yield."""
    _kept: list[Slice] = field(default_factory=list)

    def fill(self) -> None:
        """Idle GPUs: the starving first, then any job that fits."""
        if self.slicing.guards.starve_after_ms:
            self._serve_all()
        self.slicing.fill()

    def _serve_all(self) -> None:
        """Start them on idle GPUs, else in place of others, else keep GPUs; the longest wait first."""
        slicing, taken, turns = self.slicing, set[int](), 0
        slicing.draft.unreserve_gpus(tuple(self._kept))
        self._kept.clear()
        self.has_kept = False
        candidates = slicing.index.line.candidates(slicing.now)
        for key, group, record in candidates:
            if key[0] != STARVING:
                break
            if slicing.draft.is_touched(record) or not takes_turns(record):
                continue
            if self._serve(record, taken):
                turns += 1
                if turns == MOST_TURNS:
                    self._look_again(slicing.now + 1)
                    break
            elif slicing.index.home(record) is None:
                candidates.drop(group)

    def _serve(self, record: JobRecord, taken: set[int]) -> bool:
        slicing = self.slicing
        placement = slicing.free_place(record)
        if placement is not None:
            slicing.start(record, placement)
            return True
        home = slicing.turn_home(record, is_starving=True)
        if home is None or any(node in taken for node, _ in home):
            return False
        victims = slicing.yielding(home, at_once=True)
        if victims is not None:
            return slicing.replace(victims, record, home)
        if all(self._will_be_free(node, count) for node, count in home):
            self._keep(home)
            taken.update(node for node, _ in home)
        return False

    def _will_be_free(self, node: int, count: int) -> bool:
        """Whether `count` GPUs of the node are idle or held by runs that take turns."""
        held = {
            piece.gpu
            for each in self.slicing.view.residents(node)
            if each.placement is not None and not takes_turns(each)
            for piece in each.placement.slices
            if piece.node == node
        }
        return self.slicing.view.topology.nodes[node].gpus - len(held) >= count

    def _keep(self, home: Home) -> None:
        slicing, space = self.slicing, self.slicing.draft.space
        for node, _ in home:
            first = space.first_gpu[node]
            idle = tuple(space.whole_slices[first + local] for local in bits(space.whole[node]))
            slicing.draft.reserve_gpus(idle)
            self._kept += idle
            slicing.held.add(node)
            for each in slicing.view.residents(node):
                self._look_again(slicing.guards.next_due(each, slicing.now))
        self.has_kept = True

    def _look_again(self, time: int | None) -> None:
        if time is not None:
            self.again_at = time if self.again_at is None else min(self.again_at, time)
