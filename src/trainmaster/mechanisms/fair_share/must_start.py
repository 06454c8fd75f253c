"""Jobs that are due now, whatever the queues' budgets are: starving ones, and those with deadlines to meet.

What due jobs need counts as guaranteed to their queue, so that no other queue takes it back. One that
waits starts at the cost of its own queue first, the worst in line before the others, then of those that
have had most; never at the cost of another job that is due.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from trainmaster.core.lifecycle import ALLOCATED, WAITING
from trainmaster.core.state import JobRecord
from trainmaster.mechanisms.fair_share.queue_pass import QueuePass
from trainmaster.model.placement import Placement


def sizes_by_queue(records: Sequence[JobRecord]) -> dict[str, int]:
    """Thousandths of a GPU that these jobs of each queue need."""
    found: dict[str, int] = {}
    for record in records:
        queue = record.job.queue
        found[queue] = found.get(queue, 0) + record.demand.nominal.total_share
    return found


def start_due_jobs(round_: QueuePass, records: Sequence[JobRecord]) -> None:
    """Start those that wait, in this order; all queues have planned within their parts before."""
    spared = {record.seq for record in records}
    for record in records:
        if record.phase in WAITING and not round_.draft.is_touched(record):
            _start(round_, record, spared)


def _start(round_: QueuePass, record: JobRecord, spared: set[int]) -> None:
    draft, leaf = round_.draft, round_.tree.leaves[record.job.queue]
    mark, gone = draft.checkpoint(), list[JobRecord]()
    placement = _placed(round_, record)
    for victim in _to_go(round_, record, spared) if placement is None else ():
        draft.suspend(victim)
        _give(round_, victim, -1)
        gone.append(victim)
        placement = _placed(round_, record)
        if placement is not None:
            break
    if placement is None:
        draft.roll_back(mark)
        for victim in gone:
            _give(round_, victim, 1)
        return
    round_.start(leaf, record, placement)
    for victim in reversed(gone):
        if draft.keep(victim):
            _give(round_, victim, 1)


def _placed(round_: QueuePass, record: JobRecord) -> Placement | None:
    """Where it fits now, within the maxima; not looked for before enough GPUs are free at all."""
    space, demand, leaf = round_.draft.space, record.demand, round_.tree.leaves[record.job.queue]
    free = sum([space.free_gpus[kind] for kind in space.kinds_for(demand)])
    if leaf.full_for(demand.nominal.total_share) or (
        record.is_whole and free < demand.nominal.count
    ):
        return None
    return round_.placed(record, None)


def _to_go(round_: QueuePass, record: JobRecord, spared: set[int]) -> Iterator[JobRecord]:
    """Runs that it may cost, the first to go first."""
    mine = round_.tree.leaves[record.job.queue]
    others = [leaf for leaf in reversed(round_.tree.offers()) if leaf is not mine]
    for leaf in (mine, *others):
        part = round_.parts[leaf.name]
        order = round_.line_of(part)
        for run in order.worst_first(round_.now) if order is not None else ():
            is_free = run.phase in ALLOCATED and not round_.draft.is_touched(run)
            if is_free and run.seq not in spared:
                yield run


def _give(round_: QueuePass, victim: JobRecord, sign: int) -> None:
    held = round_.parts[victim.job.queue].allocated_to(victim)
    round_.tree.leaves[victim.job.queue].give(sign * held)
