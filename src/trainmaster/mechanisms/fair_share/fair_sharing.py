"""Fair sharing between queues with preemption: which queue starves, which gives GPUs back, past usage."""

from __future__ import annotations

from dataclasses import dataclass, field

from trainmaster.config.options import at_least_zero, choice, fraction, option
from trainmaster.mechanisms.base_policy import M
from trainmaster.mechanisms.fair_share.decayed_fair_share import Usage, divide, in_thousandths
from trainmaster.mechanisms.fair_share.hierarchical_policy import (
    HierarchicalPolicy,
    Q,
    QueueOptions,
)
from trainmaster.mechanisms.fair_share.queue_pass import QueuePass, QueuePassMemo
from trainmaster.mechanisms.fair_share.queue_tree import QueueNode
from trainmaster.mechanisms.fair_share.reclaim import Reclaim, guaranteed, latest_started
from trainmaster.model.codec import stored_as
from trainmaster.model.plan import FrozenMap
from trainmaster.model.units import NOMINAL, to_ms


@dataclass(frozen=True, slots=True)
class FairOptions(QueueOptions):
    preemption: str = option("on", choice("on", "off"), "whether starving queues take GPUs back")
    preempt_timeout_s: float = option(
        300.0, at_least_zero, "seconds that a queue starves before it takes GPUs back"
    )
    share_threshold: float = option(
        0.5, fraction, "a queue starves below this fraction of its fair share"
    )
    utilisation_threshold: float = option(
        0.8, fraction, "reclaim GPUs only when more than this fraction is allocated"
    )
    half_life_s: float = option(
        0.0, at_least_zero, "half-life of past usage, in seconds; 0: count current usage only"
    )


@stored_as("fair.Memo")
@dataclass(frozen=True, slots=True)
class FairMemo:
    """The inner policies' memory, since when queues starve, and their past usage."""

    rounds: QueuePassMemo = field(default_factory=QueuePassMemo)
    starving: FrozenMap[str, int] = field(default_factory=FrozenMap)
    usage: Usage = field(default_factory=Usage)


class FairSharing(HierarchicalPolicy[Q, M]):
    """The parts of fair sharing, for a policy with options and a memo of its own."""

    def __init__(self, options: Q, terms: FairOptions) -> None:
        super().__init__(options)
        self.is_preemptive = terms.preemption == "on"
        self._timeout_ms = to_ms(terms.preempt_timeout_s)
        self._half_life_ms = to_ms(terms.half_life_s)
        self._threshold_ppm = round(terms.share_threshold * NOMINAL)
        self._full_ppm = round(terms.utilisation_threshold * NOMINAL)

    def _divide(self, round_: QueuePass, total: int, averages: dict[str, int]) -> None:
        if not self._half_life_ms:
            round_.tree.divide_fairly(total)  # with one, `divide` begins so
        divide(round_.tree, total, in_thousandths(averages) if self._half_life_ms else None)

    # -- starving --------------------------------------------------------------------------------

    def _is_starving(self, leaf: QueueNode) -> bool:
        owed = max(leaf.fair * self._threshold_ppm // NOMINAL, leaf.minimum)
        return leaf.used < min(owed, leaf.wanted)

    def _starving_since(self, round_: QueuePass, before: FrozenMap[str, int]) -> dict[str, int]:
        return {
            leaf.name: before.get(leaf.name, round_.now)
            for leaf in round_.tree.offers()
            if self._is_starving(leaf)
        }

    def _take_back(self, round_: QueuePass, since: FrozenMap[str, int], total: int) -> None:
        leaves = round_.tree.offers()
        if sum(leaf.used for leaf in leaves) * NOMINAL <= self._full_ppm * total:
            return
        for leaf in leaves:
            began = since.get(leaf.name, round_.now)
            if round_.now >= began + self._timeout_ms and self._is_starving(leaf):
                Reclaim(round_, _fair, latest_started).serve(leaf, min(leaf.fair, leaf.wanted))
                Reclaim(round_, guaranteed, latest_started).serve(leaf, leaf.claim.least)

    def _wake_at(self, round_: QueuePass, starving: FrozenMap[str, int]) -> int | None:
        times = [round_.wake_at()]
        if self.is_preemptive:
            times += [began + self._timeout_ms for began in starving.values()]
        return min((at for at in times if at is not None and at > round_.now), default=None)

    # -- memory ----------------------------------------------------------------------------------

    def _averages(self, memo: FairMemo, now: int) -> dict[str, int]:
        return memo.usage.at(now, self._half_life_ms) if self._half_life_ms else {}

    def _noted(self, round_: QueuePass, averages: dict[str, int]) -> Usage:
        if not self._half_life_ms:
            return Usage()
        return Usage(round_.now, FrozenMap(averages)).holding(round_.tree)


def _fair(node: QueueNode) -> int:
    return node.fair
