"""The queues as a tree: what each may call its own, what it may hold now, and who is offered GPUs first.

Shares are divided level by level, among those with demand below them. A queue that nobody defined is a
queue of weight 1 under the root. Jobs of a queue that has queues inside it compete with those as one
more queue of weight 1. A queue guarantees at least what the queues inside it are guaranteed.

Numbers are thousandths of a GPU. A tree is a cache: it is built from the queues of the view, and what
is held and wanted is put in at each pass.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from trainmaster.core.queue_views import QueueView
from trainmaster.mechanisms.fair_share.max_min_shares import (
    OfferKey,
    ShareClaim,
    budgets,
    fair_shares,
    offer_key,
)
from trainmaster.model.queue import Queue


class QueueNode:
    """One queue, or the root; those at the leaves have jobs."""

    __slots__ = (
        "budget",
        "children",
        "claim",
        "fair",
        "maximum",
        "minimum",
        "name",
        "parent",
        "remembered",
        "steady",
        "used",
        "wanted",
        "weight",
    )

    def __init__(self, queue: Queue, parent: QueueNode | None) -> None:
        self.name = queue.name
        self.parent = parent
        self.children: list[QueueNode] = []
        self.weight = queue.weight
        self.minimum = queue.guaranteed
        self.maximum = queue.maximum
        self.used = 0
        """Held now, by the draft's reckoning."""
        self.wanted = 0
        """Held if all its jobs ran; 0 = not active."""
        self.remembered: int | None = None
        """Usage of the past that counts against it, where a policy remembers it."""
        self.claim = ShareClaim()
        self.budget = 0
        """Max-min part of what there is: what it may hold for now, never above its demand."""
        self.fair = 0
        """YARN's fair share among active queues: what it may call its own."""
        self.steady = 0
        """YARN's fair share if all queues were active."""

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
        """Itself and those around it whose maximum stands in the way of so much more."""
        return [
            node
            for node in self.path()
            if node.maximum is not None and node.used + share > node.maximum
        ]

    def never_holds(self, share: int) -> bool:
        """Whether a maximum forbids a job of that size for good."""
        return any(node.maximum is not None and share > node.maximum for node in self.path())


class QueueTree:
    """All known queues; `count` puts a pass's numbers in."""

    def __init__(
        self, queues: Mapping[str, Queue], weights: Mapping[str, int], names: Iterable[str]
    ) -> None:
        self._root = QueueNode(Queue(""), None)
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
            found = self._by_name[name] = QueueNode(known[name], parent)
            found.weight = weights.get(name, found.weight)
            parent.children.append(found)
        return found

    def _leaf_of(self, node: QueueNode) -> QueueNode:
        if not node.children:
            return node
        leaf = QueueNode(Queue(node.name), node)
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
            parts = budgets([child.claim for child in node.children], node.budget)
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
            everybody = node.children
            for child, share in zip(everybody, _shares(everybody, node.steady), strict=True):
                child.steady = share

    # -- who goes first --------------------------------------------------------------------------

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
        keyed.sort(key=_first)
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
    return fair_shares(claims, total)


def _first(pair: tuple[OfferKey, QueueNode]) -> OfferKey:
    return pair[0]
