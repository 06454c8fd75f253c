"""Themis' partial allocation auction (NSDI'20, sections 4 and 5): bids in, bundles and payments out.

Each bidder states what bundles of GPUs are worth to it: 1 / rho. Chosen are disjoint bundles that serve
as many bidders as possible, and among those the ones with the largest product of values (Nash
welfare). A winner then keeps only the fraction of its bundle that its presence leaves to the others:
the hidden payment, which makes bidding untruthfully unprofitable.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import exp, log

MOST_EXACT = 16
"""More bidders than this are served greedily."""


@dataclass(frozen=True, slots=True)
class Bundle:
    """A number of GPUs and their value to the bidder."""

    gpus: int
    value: float


@dataclass(frozen=True, slots=True)
class Bid:
    """What a bidder would take, growing in GPUs and value; nothing is always possible, and worth 0."""

    bidder: str
    bundles: tuple[Bundle, ...]


Winners = Mapping[str, Bundle]
Score = tuple[int, float]
"""(bidders served, sum of the logarithms of their values)."""


def allocate(bids: Sequence[Bid], gpus: int) -> Winners:
    """Disjoint bundles: most bidders served, then the largest product of values."""
    chosen = {bid.bidder: bid.bundles[-1] for bid in bids if bid.bundles}
    if sum(bundle.gpus for bundle in chosen.values()) <= gpus:
        return chosen
    return _exact(bids, gpus) if len(bids) <= MOST_EXACT else _greedy(bids, gpus)


def _exact(bids: Sequence[Bid], gpus: int) -> Winners:
    """A knapsack over the GPUs: the best score for each number used, bidder by bidder."""
    best: dict[int, tuple[Score, tuple[tuple[str, Bundle], ...]]] = {0: ((0, 0.0), ())}
    for bid in bids:
        grown = dict(best)
        for used, ((served, welfare), taken) in best.items():
            for bundle in bid.bundles:
                total = used + bundle.gpus
                if total > gpus:
                    break
                score = (served + 1, welfare + log(bundle.value))
                if total not in grown or score > grown[total][0]:
                    grown[total] = (score, (*taken, (bid.bidder, bundle)))
        best = grown
    return dict(max(best.values(), key=lambda found: found[0])[1])


def _greedy(bids: Sequence[Bid], gpus: int) -> Winners:
    """Smallest bundles first, so that most are served; then whatever gains most per GPU."""
    chosen: dict[str, int] = {}
    left = gpus
    for bid in sorted((bid for bid in bids if bid.bundles), key=lambda bid: bid.bundles[0].gpus):
        if bid.bundles[0].gpus <= left:
            chosen[bid.bidder] = 0
            left -= bid.bundles[0].gpus
    served = [bid for bid in bids if bid.bidder in chosen]
    while True:
        steps = [step for bid in served for step in _steps(bid, chosen[bid.bidder], left)]
        if not steps:
            return {bid.bidder: bid.bundles[chosen[bid.bidder]] for bid in served}
        _, bidder, index, extra = max(steps, key=lambda step: step[0])
        chosen[bidder] = index
        left -= extra


def _steps(bid: Bid, at: int, left: int) -> list[tuple[float, str, int, int]]:
    """Larger bundles it could have instead: (gain per GPU, bidder, which, GPUs more)."""
    now = bid.bundles[at]
    return [
        (log(more.value / now.value) / (more.gpus - now.gpus), bid.bidder, index, extra)
        for index, more in enumerate(bid.bundles)
        if index > at and (extra := more.gpus - now.gpus) <= left
    ]


def kept_fractions(bids: Sequence[Bid], gpus: int, winners: Winners) -> dict[str, float]:
    """Of each winner's bundle, the part it keeps: what others get beside it / what they would without."""
    served = [bid for bid in bids if bid.bidder in winners]
    if all(winners[bid.bidder] == bid.bundles[-1] for bid in served):
        return {bid.bidder: 1.0 for bid in served}  # no other could have more without it
    kept = {}
    for bid in served:
        others = [other for other in served if other.bidder != bid.bidder]
        beside = _welfare(others, winners)
        without = _welfare(others, allocate(others, gpus))
        kept[bid.bidder] = min(1.0, exp(beside - without))
    return kept


def _welfare(bids: Sequence[Bid], winners: Winners) -> float:
    return sum(log(winners[bid.bidder].value) for bid in bids)
