"""Follows the nodes of a Ray cluster, and keeps a launcher on each that is alive and has devices."""

from __future__ import annotations

import asyncio
import pickle
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import ray
import structlog
from ray.exceptions import RayActorError, RayError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from trainmaster import __version__
from trainmaster.engines.ray import ray_state
from trainmaster.engines.ray.gateway_messages import Looked
from trainmaster.engines.ray.held_devices import taken
from trainmaster.engines.ray.launcher_actor import LauncherActor, Refusal, Start, Welcome
from trainmaster.engines.ray.node_facts import SLOTS_LABEL, NodeFacts
from trainmaster.engines.ray.node_link import Unreachable
from trainmaster.engines.ray.node_news import MARGIN_MS, Sight
from trainmaster.engines.ray.ray_state import Free, NodeRow

log = structlog.get_logger(__name__)

LOOK_S = 1.0
START_S = 60.0
"""How long a launcher may take to start: Ray may have to start a worker on a busy node."""
AGAIN_AT_ONCE_S = 0.1
"""After which one is asked again whose process was being started, or was ended."""
AGAIN_S = 15.0
"""After which a node that could not be used is tried again."""
NOTICED_S = 75.0
"""Ray takes a minute to notice that a raylet hangs: until then two of one name are one that was restarted."""
REPLACED = "Another raylet at {} has this name, and is newer: that one is used."
NO_DEVICES = (
    f"Ray knows of no GPUs there (`ray start --num-gpus`), and no label {SLOTS_LABEL}=N makes N slots of its"
    " cores."
)
FENCE_PAST_S = 2 * MARGIN_MS / 1000
"""After its fence a node is counted as gone."""


@dataclass(slots=True)
class _Member:
    """A node that is alive, and its launcher."""

    facts: NodeFacts
    actor: Any = None
    welcome: Welcome | Refusal | None = None
    starting: asyncio.Task[None] | None = None
    is_doubtful: bool = False
    """Whether its launcher did not answer a call: it may be another process by now."""
    refused_at: float = 0.0
    is_fence_as_it_was: bool = False
    """Whether the launcher that was tried last refused by itself: until then it confirms nothing."""
    failures: int = 0
    """Starts in a row of which nobody knows how far they came."""
    taken: int = 0
    """Devices that others hold, ..."""
    taken_before: int = 0
    """... and at the look before: Ray hears of changes one by one, so it counts when it is seen twice."""


@dataclass(slots=True)
class Membership:
    store: str
    fence_s: float
    longest_fence_s: float
    """The longest that any manager of the store has had."""
    serves_users: bool
    launcher: str
    others_have: Callable[[Free, str], float]
    """What of a resource of a node others hold."""
    _members: dict[str, _Member] = field(default_factory=dict)
    """By incarnation."""
    _deaths: dict[str, Sight] = field(default_factory=dict)
    """Nodes that were seen alive and are dead now, by name."""
    _replaced: dict[str, float] = field(default_factory=dict)
    """When the launcher of each node was ended whose place a newer one took, by incarnation."""

    async def look(self) -> Looked:
        rows = await asyncio.to_thread(ray_state.node_rows)
        free = await asyncio.to_thread(ray_state.free_resources)
        living = [row for row in rows if row.is_alive]
        usable = [row for row in living if row.facts.has_devices]
        chosen, replaced, second = _one_of_each_name(usable)
        troubles = [why for _, why in second]
        here = {row.facts.incarnation: row for row in chosen}
        self._bury(here, rows)
        troubles += await self._end_replaced(replaced)
        for incarnation, row in here.items():
            member = self._members.setdefault(incarnation, _Member(row.facts))
            self._deaths.pop(row.facts.name, None)
            if incarnation in free:
                others = partial(self.others_have, free[incarnation])
                _note_taken(member, taken(row.facts, others))
            self._start_where_needed(member)
        await asyncio.sleep(0)
        sights = [_sight(each) for each in self._members.values()]
        is_settled = all(each.starting is None for each in self._members.values())
        alive = (
            *((each.facts.name, _why_refused(each)) for each in self._members.values()),
            *((row.facts.name, REPLACED.format(row.facts.host)) for row in replaced),
            *second,
            *((row.facts.name, NO_DEVICES) for row in living if _is_without_devices(row)),
        )
        return Looked((*sights, *self._deaths.values()), tuple(troubles), is_settled, alive)

    async def call(self, node: str, method: str, words: bytes) -> bytes:
        member = self._of_name(node)
        if member is None or member.actor is None or not isinstance(member.welcome, Welcome):
            raise Unreachable(f"{node} has no launcher now.")
        try:
            answer: bytes = await member.actor.call.remote(method, words)
            return answer
        except RayError as error:
            member.is_doubtful = True
            raise Unreachable(f"{node} does not answer: {first_line(error)}") from None

    def withdraw(self) -> None:
        """End all launchers for good."""
        for member in self._members.values():
            if member.starting is not None:
                member.starting.cancel()
            self._end(member)

    def incarnation_of(self, node: str) -> str | None:
        member = self._of_name(node)
        return None if member is None else member.facts.incarnation

    def facts_of(self, incarnation: str) -> NodeFacts | None:
        member = self._members.get(incarnation)
        return None if member is None else member.facts

    # -- launchers -----------------------------------------------------------------------------------------

    def _start_where_needed(self, member: _Member) -> None:
        now = asyncio.get_running_loop().time()
        is_refused = isinstance(member.welcome, Refusal)
        is_due = is_refused and now - member.refused_at > self._pause_s(member)
        if member.starting is None and (member.welcome is None or member.is_doubtful or is_due):
            member.is_doubtful = False
            member.starting = asyncio.create_task(self._start(member))

    def _pause_s(self, member: _Member) -> float:
        """A start that fails may let runs go on; where it does so again, their fence has time to end them,
        though it may be that of an earlier manager."""
        return AGAIN_S if member.failures < 2 else max(AGAIN_S, self.longest_fence_s + FENCE_PAST_S)

    async def _start(self, member: _Member) -> None:
        member.is_fence_as_it_was = False
        member.failures += 1
        try:
            member.welcome = await asyncio.wait_for(self._welcome(member), START_S)
        except TimeoutError:
            member.welcome = Refusal(f"The launcher of {member.facts.name} does not start.")
        except RayError as error:
            member.welcome = Refusal(_why_not_started(member.facts.name, error))
        else:
            member.failures = 0
        finally:
            member.starting = None
        if isinstance(member.welcome, Refusal):
            log.error("a node cannot be used", node=member.facts.name, why=member.welcome.why)
            member.refused_at = asyncio.get_running_loop().time()
            self._end(member)

    async def _welcome(self, member: _Member) -> Welcome | Refusal:
        start = Start(
            member.facts, self.store, self.fence_s, __version__, self.serves_users, self.launcher
        )
        is_first = True
        while True:
            member.actor = self._actor(start)
            try:
                said: Welcome | Refusal = pickle.loads(await member.actor.start.remote())
            except RayActorError as error:
                if error.actor_init_failed:
                    raise
                log.warning("a launcher is started again", node=start.facts.name, why=str(error))
                is_first = False
                await asyncio.sleep(AGAIN_AT_ONCE_S)
                continue
            if isinstance(said, Refusal) or said.start == start:
                member.is_fence_as_it_was = isinstance(said, Refusal) and is_first
                return said
            is_first = False
            self._end(member)  # it is that of an earlier manager, with another version or fence
            await asyncio.sleep(AGAIN_AT_ONCE_S)

    def _actor(self, start: Start) -> Any:
        return (
            ray.remote(LauncherActor)
            .options(
                name=_name_of(start.facts.incarnation),
                lifetime="detached",
                get_if_exists=True,
                num_cpus=0,
                max_restarts=-1,
                scheduling_strategy=NodeAffinitySchedulingStrategy(
                    start.facts.incarnation, soft=False
                ),
            )
            .remote(pickle.dumps(start))
        )

    def _end(self, member: _Member) -> None:
        """Its launcher alone: runs go on until the fence."""
        if member.actor is not None:
            ray.kill(member.actor)
            member.actor = None

    def _bury(self, here: dict[str, NodeRow], rows: Iterable[NodeRow]) -> None:
        why = {row.facts.incarnation: row.why for row in rows if not row.is_alive}
        for incarnation in [each for each in self._members if each not in here]:
            member = self._members.pop(incarnation)
            if member.starting is not None:
                member.starting.cancel()
            said = why.get(incarnation) or "it is not in its list any more"
            name = member.facts.name
            self._deaths[name] = Sight(name, incarnation, why=f"Ray counts it as dead: {said}.")

    async def _end_replaced(self, rows: Iterable[NodeRow]) -> list[str]:
        """The launchers of both would end each other for ever: Ray starts an actor again that was killed."""
        now = asyncio.get_running_loop().time()
        lasting: list[str] = []
        for row in rows:
            facts = row.facts
            if facts.incarnation not in self._replaced:
                await asyncio.to_thread(_end_named, _name_of(facts.incarnation))
                self._replaced[facts.incarnation] = now
            if now - self._replaced[facts.incarnation] >= NOTICED_S:
                lasting.append(
                    f"Two raylets on {facts.host} are called {facts.name}: the older one is not used; stop"
                    " it, or give one another --node-name."
                )
        return lasting

    def _of_name(self, node: str) -> _Member | None:
        return next((each for each in self._members.values() if each.facts.name == node), None)


def _name_of(incarnation: str) -> str:
    return f"launcher:{incarnation}"


def _end_named(actor: str) -> None:
    try:
        ray.kill(ray.get_actor(actor))
    except ValueError:  # it has none
        return


def _why_refused(member: _Member) -> str:
    return member.welcome.why if isinstance(member.welcome, Refusal) else ""


def _is_without_devices(row: NodeRow) -> bool:
    """Not of a head, nor of a node that is to run nothing, as where the manager is."""
    return not (row.facts.has_devices or row.is_head) and row.facts.cpus > 0


def _sight(member: _Member) -> Sight:
    facts, said = member.facts, member.welcome
    if isinstance(said, Welcome) and not member.is_doubtful:
        return Sight(
            *(facts.name, facts.incarnation, said.launcher, said.node, said.remarks),
            taken=member.taken,
            former=said.former,
        )
    if isinstance(said, Refusal) and member.starting is None:
        return Sight(
            *(facts.name, facts.incarnation),
            why=said.why,
            is_fence_as_it_was=member.is_fence_as_it_was,
        )
    return Sight(facts.name, facts.incarnation)


def _note_taken(member: _Member, seen: int) -> None:
    if seen == member.taken_before:
        member.taken = seen
    member.taken_before = seen


def _one_of_each_name(
    rows: Iterable[NodeRow],
) -> tuple[list[NodeRow], list[NodeRow], list[tuple[str, str]]]:
    """Of nodes with one name on one host the newest, and those whose place it took; of those on several
    hosts the first, and why not the others."""
    chosen: dict[str, NodeRow] = {}
    replaced: list[NodeRow] = []
    troubles: dict[str, str] = {}
    for row in sorted(rows, key=lambda each: each.since_ms):
        name, other = row.facts.name, chosen.get(row.facts.name)
        if other is not None and other.facts.host != row.facts.host:
            troubles[name] = (
                f"Two nodes of the Ray cluster are called {name}, at {other.facts.host} and at"
                f" {row.facts.host}: the second one is not used; give it another --node-name."
            )
        else:
            replaced += [] if other is None else [other]
            chosen[name] = row
    return list(chosen.values()), replaced, list(troubles.items())


def _why_not_started(node: str, error: RayError) -> str:
    if "No module named 'trainmaster" in str(error):
        return (
            f"Trainmaster is not installed in the Python of Ray on {node}: install it there as here"
            f" ({__version__}; `pip install ./sdk .` in its checkout)."
        )
    return f"The launcher of {node} could not be started: {first_line(error)}"


def first_line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0] if lines else type(error).__name__
