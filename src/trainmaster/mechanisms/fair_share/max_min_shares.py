"""Dividing GPUs between claims: YARN's fair shares, max-min budgets, and who is offered GPUs first.

Three different things. A *fair share* is what a queue may call its own while it is active; YARN's
procedure rounds each one by itself, so the shares need not add up to the total (ten GPUs for three
equal queues are 3.334 each): never treat them as a partition. A *budget* is what a queue may hold now:
max-min, never above its demand, what one does not want goes to the others, and budgets never add up
to more than the total. The *offer key* says who goes first when something is free.

All numbers are integers of one unit: thousandths of a GPU, or whole GPUs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

BISECTIONS = 25
"""Halvings after which YARN takes the upper end."""
RATIO_UNIT = 1 << 20
"""Usage per weight is compared in parts of this."""


@dataclass(frozen=True, slots=True)
class ShareClaim:
    """What one side brings to the table when GPUs are divided."""

    weight: int = 1
    least: int = 0
    """Guaranteed."""
    most: int | None = None
    """Maximum; None = whatever there is."""


def fair_shares(claims: Sequence[ShareClaim], total: int) -> list[int]:
    """YARN's procedure: the ratio R at which clamp(weight x R, least, most) adds up to the total.

    R is doubled from 1 until that is enough, then halved in for 25 steps; the upper end counts, and
    each share is truncated. R is kept in units of 2^-25, so that every step is exact.
    """
    wanted = min(total, sum(total if claim.most is None else claim.most for claim in claims))
    if not claims or wanted <= 0:
        return [claim.least for claim in claims]
    high = 1 << BISECTIONS
    while sum(_at_ratio(claims, high)) < wanted:
        high *= 2
    low = 0
    for _ in range(BISECTIONS):
        middle = (low + high) // 2
        used = sum(_at_ratio(claims, middle))
        if used < wanted:
            low = middle
        else:
            high = middle
            if used == wanted:
                break
    return _at_ratio(claims, high)


def _at_ratio(claims: Sequence[ShareClaim], ratio: int) -> list[int]:
    shares = []
    for claim in claims:
        share = max(claim.least, claim.weight * ratio >> BISECTIONS)
        shares.append(share if claim.most is None else min(share, claim.most))
    return shares


def budgets(claims: Sequence[ShareClaim], total: int) -> list[int]:
    """Max-min: clamp(weight x R, least, most) with the exact R, rounded down, never above the total.

    Whoever would get less than its least or more than its most is settled first, by the side on which
    the violations are larger, and the rest is divided among the others. Where not even the guarantees
    fit, they are cut in proportion.
    """
    mosts = [total if claim.most is None else claim.most for claim in claims]
    if sum(mosts) <= total:
        return mosts
    leasts = [min(claim.least, most) for claim, most in zip(claims, mosts, strict=True)]
    floor = sum(leasts)
    if floor >= total:
        return [least * total // floor for least in leasts] if floor else leasts
    found = [0] * len(claims)
    free, left = list(range(len(claims))), total
    while free:
        weight = sum(claims[i].weight for i in free)
        violation = 0
        for i in free:
            share = left * claims[i].weight // weight
            found[i] = max(leasts[i], min(share, mosts[i]))
            violation += found[i] - share
        if violation == 0:
            break
        ideal = {i: left * claims[i].weight // weight for i in free}
        settled = [i for i in free if (found[i] - ideal[i]) * violation > 0]
        left -= sum(found[i] for i in settled)
        free = [i for i in free if i not in settled]
    return found


OfferKey = tuple[bool, bool, int, str]


def offer_key(name: str, claim: ShareClaim, used: int, demand: int) -> OfferKey:
    """YARN's order of offers, lowest first.

    Without demand last; below its guarantee before the rest, by usage / guarantee; else by usage /
    weight; then by name. (YARN's tie-break by start time is for applications: its queues all start
    at 0.)
    """
    is_needy = claim.least > 0 and used < min(claim.least, demand)
    divisor = claim.least if is_needy else claim.weight
    return (demand <= 0, not is_needy, used * RATIO_UNIT // divisor, name)
