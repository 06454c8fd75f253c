"""Max-min shares between queues that remember: who used more than its share before gets less now.

GPUs are divided as in `two-level`: budgets, loans of what is left, and taking back what is lent as soon
as its owner has a job for it. A queue's weight is lessened by what it has used, fading by a half-life
(usage.py), so that one that was idle catches up and one that always asks does not always get. Weights
are made anew every ten minutes, not at each pass: else budgets would creep, and runs with them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from trainmaster.core.state import JobRecord
from trainmaster.mechanisms.fair_share.must_start import sizes_by_queue, start_promised
from trainmaster.mechanisms.fair_share.queue_pass import Round, RoundMemo
from trainmaster.mechanisms.fair_share.queue_tree import Node
from trainmaster.mechanisms.fair_share.reclaim import settle
from trainmaster.mechanisms.fair_share.usage_decay import Usage, in_thousandths, lessened
from trainmaster.model.codec import stored_as
from trainmaster.model.plan import FrozenMap
from trainmaster.model.units import MINUTE

REFRESHED_MS = 10 * MINUTE


@stored_as("fair-share.Memo")
@dataclass(frozen=True, slots=True)
class SharesMemo:
    """The inner policies' memory, what queues have used, and what of it counts until the next look."""

    rounds: RoundMemo = field(default_factory=RoundMemo)
    usage: Usage = field(default_factory=Usage)
    counted: FrozenMap[str, int] = field(default_factory=FrozenMap)
    """Thousandths of a GPU by queue."""
    counted_ms: int = 0


def remembered(memo: SharesMemo, now: int, half_life_ms: int) -> SharesMemo:
    """The memory at this time; what counts is made anew when it is old."""
    if not half_life_ms:
        return memo
    averages = memo.usage.at(now, half_life_ms)
    usage = Usage(now, FrozenMap(averages), memo.usage.held)
    if now < memo.counted_ms + REFRESHED_MS:
        return SharesMemo(memo.rounds, usage, memo.counted, memo.counted_ms)
    return SharesMemo(memo.rounds, usage, FrozenMap(in_thousandths(averages)), now)


def share_out(
    round_: Round, memo: SharesMemo, total: int, half_life_ms: int, promised: Sequence[JobRecord]
) -> None:
    """Divide, let every queue plan within its part, keep promises, take back, lend."""
    divide(round_, memo, total, half_life_ms, promised)
    round_.plan_within_budgets()
    start_promised(round_, promised)
    settle(round_)


def divide(
    round_: Round, memo: SharesMemo, total: int, half_life_ms: int, promised: Sequence[JobRecord]
) -> None:
    """Give every queue its budget."""
    tree, sizes = round_.tree, sizes_by_queue(promised)
    if half_life_ms:
        tree.divide_fairly(total)
        tree.remember(memo.counted)
        tree.divide_budgets(total, lessened_weight, sizes)
    else:
        tree.divide_budgets(total, None, sizes)


def noted(round_: Round, memo: SharesMemo, half_life_ms: int) -> SharesMemo:
    """With what the queues hold after this round."""
    usage = memo.usage
    if half_life_ms:
        held = {name: tip.used for name, tip in round_.tree.tips.items() if tip.used}
        usage = Usage(usage.as_of_ms, usage.average, FrozenMap(held))
    return SharesMemo(round_.memo(), usage, memo.counted, memo.counted_ms)


def lessened_weight(node: Node) -> int:
    """What a queue's weight comes to after what it has used."""
    return lessened(node.weight, node.remembered or 0, node.steady)
