"""The queues as a tree: fair shares, budgets, and the order in which queues are offered GPUs.

Shares are divided level by level among the queues with demand. A queue that is not defined has weight 1
under the root. The jobs of a queue that has child queues compete with them as one more queue of weight 1.
A queue's guarantee is at least the sum of its children's.

Numbers are thousandths of a GPU. A tree is a cache: it is built from the queues of the view, and each
pass fills in usage and demand.

There are three different numbers. A *fair share* is what a queue is entitled to while it is active; YARN's
procedure rounds each one by itself, so the shares need not add up to the total (ten GPUs for three
equal queues are 3.334 each): never treat them as a partition. A *budget* is what a queue may hold now:
max-min, never above its demand, and never more than the total together. The *offer key* says which queue
is served first when GPUs are free.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from operator import itemgetter

from trainmaster.core.queue_views import QueueView
from trainmaster.model.queue import Queue
from trainmaster.model.reasons import QueueStanding

BISECTIONS = 25
"""Bisections after which YARN takes the upper bound."""
RATIO_UNIT = 1 << 20
"""Usage per weight is compared in parts of this."""


@dataclass(frozen=True, slots=True)
class ShareClaim:
    """A queue's weight, guarantee and maximum."""

    weight: int = 1
    least: int = 0
    """Guaranteed."""
    most: int | None = None
    """Maximum; None = whatever there is."""


@dataclass(slots=True, eq=False)
class QueueNode:
    """One queue, or the root; only leaves have jobs."""

    name: str
    parent: QueueNode | None
    weight: int
    minimum: int
    maximum: int | None
    children: list[QueueNode] = field(default_factory=list)
    used: int = 0
    """Held now, according to the draft."""
    wanted: int = 0
    """Held if all its jobs ran; 0 = not active."""
    remembered: int | None = None
    """Past usage that counts against it, where a policy uses it."""
    claim: ShareClaim = field(default_factory=ShareClaim)
    budget: int = 0
    """Max-min part of what there is: what it may hold for now, never above its demand."""
    fair: int = 0
    """YARN's fair share among active queues: what it may call its own."""
    steady: int = 0
    """YARN's fair share if all queues were active."""

    @classmethod
    def of(cls, queue: Queue, parent: QueueNode | None) -> QueueNode:
        return cls(queue.name, parent, queue.weight, queue.guaranteed, queue.maximum)

    def path(self) -> Iterator[QueueNode]:
        """Itself and all around it, but the root."""
        node: QueueNode | None = self
        while node is not None and node.parent is not None:
            yield node
            node = node.parent

    def give(self, share: int) -> None:
        """It holds that much more, or less."""
        for node in self.path():
            node.used += share

    @property
    def headroom(self) -> int | None:
        """How much more its own maximum and those around it allow; None = any amount."""
        rooms = [node.maximum - node.used for node in self.path() if node.maximum is not None]
        return min(rooms, default=None)

    def room_below(self, limit: int) -> int:
        """How much more it may hold up to a limit of its own, within the maxima."""
        room = self.headroom
        return limit - self.used if room is None else min(room, limit - self.used)

    def full_for(self, share: int) -> list[QueueNode]:
        """Itself and its ancestors whose maximum forbids holding this much more."""
        return [
            node
            for node in self.path()
            if node.maximum is not None and node.used + share > node.maximum
        ]

    def never_holds(self, share: int) -> bool:
        """Whether a maximum forbids a job of that size for good."""
        return self.too_small_for(share) is not None

    def too_small_for(self, share: int) -> QueueNode | None:
        """Itself or the ancestor whose maximum forbids a job of that size for good."""
        nodes = self.path()
        return next((n for n in nodes if n.maximum is not None and share > n.maximum), None)

    def standing(self) -> QueueStanding:
        """What it holds and may hold, for reasons."""
        return QueueStanding(self.name, self.used, self.budget, self.minimum, self.maximum)


class QueueTree:
    """All known queues; `count` puts a pass's numbers in."""

    def __init__(
        self, queues: Mapping[str, Queue], weights: Mapping[str, int], names: Iterable[str]
    ) -> None:
        self._root = QueueNode.of(Queue(""), None)
        self._by_name: dict[str, QueueNode] = {}
        known = dict(queues)
        for name in sorted({*names, *weights} - known.keys()):
            known[name] = Queue(name)
        for name in sorted(known):
            self._add(name, known, weights)
        self.leaves = {name: self._leaf_of(node) for name, node in self._by_name.items()}
        """By queue: where its jobs are."""
        self._inner = [node for node in self._by_name.values() if node.children]
        self._inner.sort(key=lambda node: -sum(1 for _ in node.path()))
        """Queues around others, innermost first."""
        self.has_maxima = any(node.maximum is not None for node in self._by_name.values())
        self._fair_for: tuple[int, tuple[str, ...]] | None = None

    def _add(self, name: str, known: Mapping[str, Queue], weights: Mapping[str, int]) -> QueueNode:
        found = self._by_name.get(name)
        if found is None:
            parent = self._root
            above = known[name].parent
            if above is not None and above in known:
                parent = self._add(above, known, weights)
            found = self._by_name[name] = QueueNode.of(known[name], parent)
            found.weight = weights.get(name, found.weight)
            parent.children.append(found)
        return found

    def _leaf_of(self, node: QueueNode) -> QueueNode:
        if not node.children:
            return node
        leaf = QueueNode.of(Queue(node.name), node)
        node.children.append(leaf)
        return leaf

    # -- a pass's numbers ------------------------------------------------------------------------

    def count(self, parts: Mapping[str, QueueView]) -> None:
        """Put in what each queue holds and wants; the others have nothing and want nothing."""
        for name, leaf in self.leaves.items():
            part = parts.get(name)
            if part is None or not part.jobs:
                leaf.used = leaf.wanted = 0
            else:
                leaf.used, leaf.wanted = part.allocated, part.wanted or 1
        for node in self._inner:
            node.used = sum([child.used for child in node.children])
            node.wanted = sum([child.wanted for child in node.children])

    def remember(self, usage: Mapping[str, int]) -> None:
        """Put in the past usage that counts against each queue."""
        for name, leaf in self.leaves.items():
            leaf.remembered = usage.get(name, 0)
        for node in self._inner:
            node.remembered = sum([child.remembered or 0 for child in node.children])

    def divide_budgets(
        self,
        total: int,
        weigh: Callable[[QueueNode], int] | None = None,
        due: Mapping[str, int] | None = None,
    ) -> None:
        """Give every queue its budget, and a claim that states its guarantee within its demand.

        What due jobs of a queue need counts as guaranteed to it.
        """
        for name, leaf in self.leaves.items():
            self._ask(leaf, leaf.wanted, due.get(name, 0) if due else 0, weigh)
        for node in self._inner:
            most = sum([child.claim.most or 0 for child in node.children])
            least = sum([child.claim.least for child in node.children])
            self._ask(node, most, least, weigh)
        self._root.budget = total
        for node in (self._root, *reversed(self._inner)):
            parts = max_min_shares([child.claim for child in node.children], node.budget)
            for child, part in zip(node.children, parts, strict=True):
                child.budget = part

    def _ask(
        self, node: QueueNode, most: int, least: int, weigh: Callable[[QueueNode], int] | None
    ) -> None:
        if node.maximum is not None and node.maximum < most:
            most = node.maximum
        least = min(max(node.minimum, least), most)
        node.claim = ShareClaim(node.weight if weigh is None else weigh(node), least, most)

    def divide_fairly(self, total: int) -> None:
        """Give every queue its fair share among the active ones, and if all were active."""
        key = (total, tuple([name for name, leaf in self.leaves.items() if leaf.wanted]))
        if key == self._fair_for:
            return
        self._fair_for = key
        self._root.fair = self._root.steady = total
        for node in (self._root, *reversed(self._inner)):
            active = [child for child in node.children if child.wanted]
            for child in node.children:
                child.fair = 0
            for child, share in zip(active, _shares(active, node.fair), strict=True):
                child.fair = share
            children = node.children
            for child, share in zip(children, _shares(children, node.steady), strict=True):
                child.steady = share

    # -- the order of offers ---------------------------------------------------------------------

    def offers(self) -> list[QueueNode]:
        """The leaves with demand, in the order in which they are offered GPUs."""
        return list(self._offers(self._root))

    def _offers(self, node: QueueNode) -> Iterator[QueueNode]:
        if not node.children:
            yield node
            return
        keyed = []
        for child in node.children:
            if child.wanted:
                used = child.used if child.remembered is None else child.remembered
                keyed.append((offer_key(child.name, child.claim, used, child.wanted), child))
        keyed.sort(key=itemgetter(0))
        for _, child in keyed:
            if child.children:
                yield from self._offers(child)
            else:
                yield child


class TreeCache:
    """The tree of the queues as they were last; it is built again when they have changed."""

    def __init__(self, weights: Mapping[str, int]) -> None:
        self._weights = weights
        self._tree: QueueTree | None = None
        self._tree_of: tuple[tuple[Queue, ...], tuple[str, ...]] = ((), ())

    def tree(self, queues: Mapping[str, Queue], names: tuple[str, ...]) -> QueueTree:
        key = (tuple(queues.values()), names)
        if self._tree is None or key != self._tree_of:
            self._tree = QueueTree(queues, self._weights, names)
            self._tree_of = key
        return self._tree

    def clear(self) -> None:
        self._tree = None


def _shares(nodes: Sequence[QueueNode], total: int) -> list[int]:
    claims = [ShareClaim(node.weight, node.minimum, node.maximum) for node in nodes]
    return yarn_fair_shares(claims, total)


def yarn_fair_shares(claims: Sequence[ShareClaim], total: int) -> list[int]:
    """YARN's procedure: the ratio R at which clamp(weight x R, least, most) adds up to the total.

    R is doubled from 1 until that is enough, then bisected 25 times; the upper bound is used, and each
    share is truncated. R is kept in units of 2^-25, so that every step is exact.
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


def max_min_shares(claims: Sequence[ShareClaim], total: int) -> list[int]:
    """Max-min: clamp(weight x R, least, most) with the exact R, rounded down, never above the total.

    Claims below their least or above their most are fixed first, on the side where the violations add up
    to more, and the rest is divided among the others. Where the guarantees do not fit, they are cut in
    proportion.
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
