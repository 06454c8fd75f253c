"""Queues as a stage: GPUs are divided between stated queues, and within its part each queue has its order.

Budgets are max-min shares by weight within guarantees and maxima, lessened by past use
(mechanisms/fair_share/). This stage takes the place of starting jobs in rank order; all other stages are
the same with queues and without (docs/design/0016-queues-are-a-stage.md).
"""

from __future__ import annotations

from trainmaster.core.queue_views import QueueView, queue_views_of
from trainmaster.core.rank_index import RankIndex
from trainmaster.core.state import JobRecord
from trainmaster.mechanisms.base_policy import BasePolicy
from trainmaster.mechanisms.fair_share.decayed_fair_share import (
    noted,
    remembered,
    share_out,
)
from trainmaster.mechanisms.fair_share.hierarchical_policy import capacity
from trainmaster.mechanisms.fair_share.queue_pass import Round
from trainmaster.mechanisms.fair_share.queue_tree import Node
from trainmaster.mechanisms.rank_order import run_in_order
from trainmaster.placement.placers import Placer
from trainmaster.policies.trainmaster.priority import promised_now, rank
from trainmaster.policies.trainmaster.scheduling_pass import Pass

UNLIMITED = 1 << 60


class QueueOrder(BasePolicy[object]):
    """The order and the placement of all queues' jobs in one pass, for the round between queues."""

    def __init__(self, p: Pass) -> None:
        super().__init__(None)
        self._pass = p

    def placer(self, record: JobRecord) -> Placer:
        return self._pass.placer(record)

    def line(self, view: QueueView, memo: None, now: int) -> RankIndex:  # type: ignore[override]
        p = self._pass
        return view.ranked(lambda each: rank(p, each), now, group=p.group, with_running=True)


class QueueRound(Round):
    """One round between the queues, on the draft that all stages share."""

    def __init__(self, p: Pass) -> None:
        self.shares = remembered(p.memo.shares, p.now, p.settings.half_life_ms)
        parts = queue_views_of(p.view)
        tree = p.caches.trees.tree(p.view.queues, (*parts, *self.shares.usage.average))
        tree.count(parts)
        order = QueueOrder(p)
        super().__init__(p.view, parts, tree, lambda _: order, self.shares.rounds, p.guards, p.now)
        self._pass = p

    def _planned(self, part: QueueView, tip: Node, allowance: int | None) -> None:
        """Run the queue's jobs in its order, within what it may hold more."""
        p, space = self._pass, self.draft.space
        self._to_ask.discard(part.queue)
        if part.is_settled():
            self._set_wake(part.queue, None)
            return
        ranks = self.line_of(part)
        assert ranks is not None
        room = UNLIMITED if allowance is None else allowance
        stuck = p.caches.stuck_in.setdefault(part.queue, {})
        space.allowance = room
        try:
            run_in_order(part, self.draft, ranks, p.now, p.group, p.placer, stuck)
            tip.give(room - space.allowance)
        finally:
            space.allowance = None
        self._set_wake(part.queue, ranks.next_expiry())


def divide_between_queues(p: Pass) -> None:
    """Every queue's jobs run within its budget; GPUs are taken back and lent between queues."""
    round_ = p.round
    assert round_ is not None
    total, half_life_ms = capacity(p.view), p.settings.half_life_ms
    if p.view.is_settled():
        round_.take_note()
    elif not (round_.is_enough_for_all(total) and round_.serve_all()):
        share_out(round_, round_.shares, total, half_life_ms, promised_now(p))
    p.remember(shares=noted(round_, round_.shares, half_life_ms))
    p.wake_by(round_.wake_at())
