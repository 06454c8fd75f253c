"""Max-min shares with past usage: a queue that used more than its share before gets less now.

GPUs are divided as in `two-level`: budgets, loans of what is left, and reclaiming lent GPUs as soon as
their owner has a job for them. A queue's weight is decayed by its past usage, which has a half-life, so
that an idle queue catches up and a busy one does not always win. Weights are refreshed every ten minutes,
not at each pass; otherwise budgets would change a little in every pass and preempt runs each time.

Past usage is the decayed average of the GPUs that a queue held, in integers that replay exactly. After
one half-life at h GPUs the average has moved half the way to h. So a queue that used twice its share in
the past is treated like one that holds twice its share now.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from trainmaster.core.state import JobRecord
from trainmaster.mechanisms.fair_share.queue_pass import QueuePass, QueuePassMemo
from trainmaster.mechanisms.fair_share.queue_tree import QueueNode, QueueTree
from trainmaster.model.codec import stored_as
from trainmaster.model.plan import FrozenMap
from trainmaster.model.units import MINUTE

FINE = 1 << 20
"""Resolution of averages, per thousandth of a GPU, so that many short steps do not round to nothing."""
FACTOR_BITS = 40
WEIGHT_UNIT = 64
"""Resolution of decayed weights, so that very small past usage does not cost a queue a whole GPU."""
REFRESHED_MS = 10 * MINUTE


@stored_as("fair-share.Usage")
@dataclass(frozen=True, slots=True)
class Usage:
    """Averages up to a time, and what has been held since."""

    as_of_ms: int = 0
    average: FrozenMap[str, int] = field(default_factory=FrozenMap)
    held: FrozenMap[str, int] = field(default_factory=FrozenMap)

    def holding(self, tree: QueueTree) -> Usage:
        """The same averages, and what the queues hold from then on."""
        held = {name: leaf.used for name, leaf in tree.leaves.items() if leaf.used}
        return Usage(self.as_of_ms, self.average, FrozenMap(held))

    def at(self, now: int, half_life_ms: int) -> dict[str, int]:
        """The averages now, in fine units, without queues whose usage has decayed to nothing."""
        span = now - self.as_of_ms
        factor = round(2.0 ** (-span / half_life_ms) * (1 << FACTOR_BITS))
        found = {}
        for queue in sorted({*self.average, *self.held}):
            held = self.held.get(queue, 0) * FINE
            average = held + ((self.average.get(queue, 0) - held) * factor >> FACTOR_BITS)
            if average >= FINE:
                found[queue] = average
        return found


def in_thousandths(averages: Mapping[str, int]) -> dict[str, int]:
    return {queue: average // FINE for queue, average in averages.items()}


def decayed_weight(weight: int, remembered: int, share: int) -> int:
    """A weight times 2^-(remembered / share): halved for a queue that has used just its share."""
    if not remembered:
        return weight * WEIGHT_UNIT
    factor: float = 2.0 ** (-remembered / max(1, share))
    return max(1, round(weight * WEIGHT_UNIT * factor))


@stored_as("fair-share.Memo")
@dataclass(frozen=True, slots=True)
class SharesMemo:
    """The inner policies' memory, the usage of queues, and how much of it counts until the next refresh."""

    rounds: QueuePassMemo = field(default_factory=QueuePassMemo)
    usage: Usage = field(default_factory=Usage)
    counted: FrozenMap[str, int] = field(default_factory=FrozenMap)
    """Thousandths of a GPU by queue."""
    counted_ms: int = 0


def with_decayed_usage(memo: SharesMemo, now: int, half_life_ms: int) -> SharesMemo:
    """The memo with usage decayed to this time; the counted usage is refreshed when it is old."""
    if not half_life_ms:
        return memo
    averages = memo.usage.at(now, half_life_ms)
    usage = Usage(now, FrozenMap(averages), memo.usage.held)
    if now < memo.counted_ms + REFRESHED_MS:
        return SharesMemo(memo.rounds, usage, memo.counted, memo.counted_ms)
    return SharesMemo(memo.rounds, usage, FrozenMap(in_thousandths(averages)), now)


def divide(
    tree: QueueTree, total: int, used: Mapping[str, int] | None, due: Sequence[JobRecord] = ()
) -> None:
    """Give every queue its budget; past usage counts where it is given.

    What due jobs need counts as guaranteed to their queue.
    """
    sizes: dict[str, int] = {}
    for record in due:
        queue = record.job.queue
        sizes[queue] = sizes.get(queue, 0) + record.demand.nominal.total_share
    if used is not None:
        tree.divide_fairly(total)
        tree.remember(used)
    tree.divide_budgets(total, None if used is None else decayed_weight_of, sizes)


def with_usage(round_: QueuePass, memo: SharesMemo, half_life_ms: int) -> SharesMemo:
    """The memo with what the queues hold after this pass."""
    usage = memo.usage
    if half_life_ms:
        usage = usage.holding(round_.tree)
    return SharesMemo(round_.memo(), usage, memo.counted, memo.counted_ms)


def decayed_weight_of(node: QueueNode) -> int:
    """A queue's weight, decayed by its past usage."""
    return decayed_weight(node.weight, node.remembered or 0, node.steady)
