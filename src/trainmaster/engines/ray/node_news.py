"""From what the gateway sees of the nodes to news for the engine: found, silent, gone."""

from __future__ import annotations

from collections.abc import Container, Iterable
from dataclasses import dataclass

from trainmaster.engines.ray.former_nodes import FormerNode
from trainmaster.engines.ray.node_link import (
    NodeFound,
    NodeGone,
    NodeNews,
    NodeSilent,
    TakenByOthers,
)
from trainmaster.model.engine_reports import ClusterNode

MARGIN_MS = 5_000
"""What the fence needs to end what runs on a node, after its time."""
NOT_THERE = "Ray does not have this node any more."
RENAMED = "Its machine is back as {}."
NEVER_THERE = "Ray has no node of this name."


@dataclass(frozen=True, slots=True)
class Sight:
    """A node as the gateway sees it now."""

    name: str
    incarnation: str
    launcher: str = ""
    """Of the process that takes calls; empty: there is none, or not yet."""
    node: ClusterNode | None = None
    remarks: tuple[str, ...] = ()
    why: str = ""
    """Why it cannot be used; empty while its launcher is being started."""
    taken: int = 0
    """Devices that other users of the cluster hold."""
    former: tuple[FormerNode, ...] = ()
    """What its machine was before, under other names."""
    is_fence_as_it_was: bool = False
    """Whether the launcher that was tried has not confirmed the node to its fence."""


@dataclass(slots=True)
class _Known:
    sight: Sight
    silent_ms: int | None = None
    is_gone: bool = False
    is_welcomed: bool = False
    """Whether a launcher of this manager took calls there: from then on the fence has this manager's time."""
    is_starting: bool = False
    """Whether a launcher is being started on it, which may let what runs there go on."""


class NodeBook:
    """Says each thing once. `fence_ms` is the time after which nothing of ours runs on a silent node.

    `longest_ms` is the longest that any manager of the data folder has had: the fence of a node that this one
    has not reached yet may still have that.
    """

    def __init__(self, fence_ms: int, longest_ms: int = 0) -> None:
        self._fence_ms = fence_ms
        self._longest_ms = max(fence_ms, longest_ms)
        self._known: dict[str, _Known] = {}

    @property
    def found(self) -> tuple[ClusterNode, ...]:
        """The nodes that can be used now."""
        here = (each.sight.node for each in self._known.values() if each.silent_ms is None)
        return tuple(node for node in here if node is not None)

    def lengthen(self, longest_ms: int) -> None:
        """Another manager with a longer fence has come since, such as a standby: each node may have that."""
        if longest_ms > self._longest_ms:
            self._fence_ms = self._longest_ms = longest_ms

    def see(self, sights: Iterable[Sight], now_ms: int) -> list[NodeNews]:
        """All nodes as they are now: one that is not among them is not there."""
        news: list[NodeNews] = []
        seen = {each.name: each for each in sights}
        former = {each: sight.name for sight in seen.values() for each in sight.former}
        for name, sight in seen.items():
            new_name = former.get(FormerNode(name, sight.incarnation))
            if new_name is not None:  # Ray may not have noticed yet
                sight = Sight(name, sight.incarnation, why=RENAMED.format(new_name))
            news += self._see(name, sight, now_ms)
        for name, known in self._known.items():
            if name in seen:
                continue
            if known.silent_ms is None or known.is_starting:
                news.append(self._silence(known, NOT_THERE, now_ms))
        return [*news, *self._gone(now_ms, former)]

    def miss(self, name: str, now_ms: int) -> list[NodeNews]:
        """A node was called that was never seen: what ran there may go on, like that of a dead one."""
        if name in self._known:
            return []
        known = self._known[name] = _Known(Sight(name, ""))
        return [self._silence(known, NEVER_THERE, now_ms)]

    def _gone(self, now_ms: int, former: Container[FormerNode]) -> list[NodeNews]:
        """Those of which nothing is left, and those that have been silent for so long that their fence has
        passed.

        Only after a look at the cluster: one that is back may have told its fence so.
        """
        news: list[NodeNews] = []
        for name, known in self._known.items():
            if known.silent_ms is None or known.is_gone or known.is_starting:
                continue
            is_former = FormerNode(name, known.sight.incarnation) in former
            if is_former or now_ms - known.silent_ms >= self._wait_ms(known):
                known.is_gone = True
                why = f"{known.sight.why or NOT_THERE} Nothing runs there any more."
                news.append(NodeGone(name, known.sight.incarnation, why))
        return news

    def _wait_ms(self, known: _Known) -> int:
        """How long a node must have been silent, so that nothing of ours runs there any more."""
        return MARGIN_MS + (self._fence_ms if known.is_welcomed else self._longest_ms)

    def now(self) -> list[NodeNews]:
        """All that is known, for one who has heard nothing yet."""
        news: list[NodeNews] = []
        for name, known in self._known.items():
            if known.silent_ms is None:
                news += _found(known.sight)
            else:
                news.append(NodeSilent(name, known.sight.incarnation, known.sight.why))
        return news

    def _see(self, name: str, sight: Sight, now_ms: int) -> list[NodeNews]:
        known = self._known.get(name)
        if sight.node is not None:
            was = None if known is None or known.silent_ms is not None else known.sight
            self._known[name] = _Known(sight, is_welcomed=True)
            is_same = was is not None and _is_same(was, sight)
            taken = [] if was is None or was.taken == sight.taken else [_taken(sight)]
            return list(taken) if is_same else _found(sight)
        if not sight.why:  # until that is done, what was is as it was
            if known is not None:
                known.is_starting = True
            return []
        if known is None:
            known = self._known[name] = _Known(sight)
        is_told = known.silent_ms is not None and known.sight.why == sight.why
        if is_told and not known.is_starting:
            return []
        is_same_refusal = is_told and known.sight.incarnation == sight.incarnation
        if is_same_refusal and sight.is_fence_as_it_was:  # its time goes on
            known.is_starting = False
            return []
        known.sight = sight
        said = self._silence(known, sight.why, now_ms)
        return [] if is_told else [said]

    def _silence(self, known: _Known, why: str, now_ms: int) -> NodeSilent:
        known.silent_ms, known.is_gone, known.is_starting = now_ms, False, False
        known.sight = Sight(known.sight.name, known.sight.incarnation, why=why)
        gone_ms = now_ms + self._wait_ms(known)
        return NodeSilent(known.sight.name, known.sight.incarnation, why, gone_ms)


def _is_same(one: Sight, other: Sight) -> bool:
    return (one.incarnation, one.launcher, one.node) == (
        other.incarnation,
        other.launcher,
        other.node,
    )


def _found(sight: Sight) -> list[NodeNews]:
    assert sight.node is not None
    return [NodeFound(sight.node, sight.incarnation, sight.remarks), _taken(sight)]


def _taken(sight: Sight) -> NodeNews:
    return TakenByOthers(sight.name, sight.taken)
