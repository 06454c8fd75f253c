"""What our runs hold on Ray: detached placement groups with a bundle for each node, on exactly that node.

So other users of the cluster see the devices taken. A group cannot be changed: a run that grows gets another
one beside the first. Ray loses the devices of a group that is removed while it is being created: they stay
taken until the raylet is restarted. So a group is only removed once Ray has decided about it.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import count, takewhile
from weakref import WeakValueDictionary

from ray.util.placement_group import (
    PlacementGroup,
    placement_group,
    placement_group_table,
    remove_placement_group,
)

from trainmaster.engines.ray import ray_state
from trainmaster.engines.ray.held_devices import GPU
from trainmaster.engines.ray.node_link import NotReserved
from trainmaster.engines.ray.ray_state import Free
from trainmaster.model.job import Run

OF_GROUP = "{}_group_"
"""Before a group's id: what of this resource of a node is in the group."""
NODE_ID = "ray.io/node-id"
PATIENCE_S = 5.0
"""How long what others hold may take to become free: Ray hears of what was given back a moment later."""
ASK_S = 1
"""How long one question may take whether a group is there: Ray drops what is beyond whole seconds."""
DECIDED_S = 30.0
"""How long Ray may take to decide about a group, as while a raylet hangs."""
REMEMBERED_S = 600.0
"""How long the devices of a removed group may still show as taken."""
CREATED, REMOVED = "CREATED", "REMOVED"
UNDECIDED = ("QUEUED", "SCHEDULING_STARTED")
"""What Ray says of a group while it asks raylets for it."""

Held = Counter[tuple[str, str]]
"""Thousandths by incarnation of a node and resource."""


@dataclass(frozen=True, slots=True)
class Group:
    """One placement group of ours."""

    id: str
    run: Run
    name: str
    held: Held
    is_whole: bool
    """Whether Ray holds all of it: not where one of its nodes has died."""


class Reservations:
    def __init__(self, store: str) -> None:
        self._prefix = f"tm:{store}:"
        self._groups: dict[Run, list[Group]] = {}
        self._locks: WeakValueDictionary[Run, asyncio.Lock] = WeakValueDictionary()
        """Of runs that are being changed."""
        self._ids: set[str] = set()
        """Of groups that are ours, ..."""
        self._removed: dict[str, float] = {}
        """... and of those that were, with the time of their removal: Ray frees them later."""
        self._unsure: set[Run] = set()
        """Runs of which Ray may have other groups than we know: it failed while they were changed."""
        self._reading = asyncio.Lock()
        self._changed: set[Run] = set()
        """Runs that were changed while Ray was asked for all: its answer may be older."""

    async def read(self) -> None:
        """What Ray has of ours now."""
        async with self._reading:
            self._changed = set()
            found = await self._table()
            busy = {run for run, lock in self._locks.items() if lock.locked()} | self._changed
            kept = {run: groups for run, groups in self._groups.items() if run in busy}
            self._groups = {run: each for run, each in found.items() if run not in busy} | kept

    async def _table(self) -> dict[Run, list[Group]]:
        found: defaultdict[Run, list[Group]] = defaultdict(list)
        for id_, row in (await asyncio.to_thread(placement_group_table)).items():
            group = self._group(id_, row)
            if group is not None and row["state"] == REMOVED:
                self._forget(id_)
            elif group is not None:
                self._ids.add(id_)
                found[group.run].append(group)
        return dict(found)

    async def reserved(self) -> dict[Run, dict[str, int]]:
        """Thousandths of GPUs by run and incarnation of a node, on those nodes of it that are left."""
        await self.read()
        return {
            run: {node: much for (node, what), much in _sum(groups).items() if what == GPU and node}
            for run, groups in self._groups.items()
        }

    async def reserve(self, run: Run, wanted: Held) -> None:
        lock = self._locks.setdefault(run, asyncio.Lock())
        async with lock:
            try:
                if run in self._unsure:
                    self._groups[run] = (await self._table()).get(run, [])
                    self._unsure.discard(run)
                await self._reserve(run, +wanted)
            except NotReserved:
                raise
            except BaseException:
                self._unsure.add(run)
                raise
            finally:
                if self._reading.locked():
                    self._changed.add(run)

    async def withdraw(self) -> None:
        """Give back all that is reserved."""
        await self.read()
        for groups in self._groups.values():
            await self._remove(groups)
        self._groups = {}

    def of_others(self, free: Free, what: str) -> float:
        """What of this resource of a node neither we hold nor nobody: what others have of it."""
        of_group = OF_GROUP.format(what)
        ours = sum(
            much
            for name, much in free.left.items()
            if name.startswith(of_group) and self._is_ours(name.removeprefix(of_group))
        )
        return max(0.0, free.total.get(what, 0.0) - free.left.get(what, 0.0) - ours)

    async def _reserve(self, run: Run, wanted: Held) -> None:
        kept, dropped = _kept(self._groups.get(run, []), wanted)
        missing = wanted - _sum(kept)
        made: Group | None = None
        if missing:
            if not dropped or await _has_room(missing):
                made = await self._make(run, missing)
            if made is None and dropped:
                made = await self._make_instead(run, missing, dropped)
                dropped = []
            if made is None:
                raise NotReserved(await _why_not(missing))
        await self._remove(dropped)
        self._groups[run] = [*kept, *([] if made is None else [made])]
        if not self._groups[run]:
            del self._groups[run]

    async def _make_instead(self, run: Run, missing: Held, dropped: list[Group]) -> Group | None:
        """In place of what it does not need any more; where that fails, it holds that again."""
        await self._remove(dropped)
        made = await self._make(run, missing)
        if made is None:
            held = _sum(each for each in dropped if each.is_whole)
            again = await self._make(run, held) if held else None
            others = [each for each in self._groups[run] if each not in dropped]
            self._groups[run] = [*others, *([] if again is None else [again])]
        return made

    async def _make(self, run: Run, held: Held) -> Group | None:
        """None where others hold it."""
        nodes = sorted({node for node, _ in held})
        bundles = [
            {what: much / 1000 for (on, what), much in held.items() if on == node} for node in nodes
        ]
        name = self._free_name(run)
        group = await asyncio.to_thread(
            placement_group,
            bundles,
            name=name,
            lifetime="detached",
            bundle_label_selector=[{NODE_ID: node} for node in nodes],
        )
        self._ids.add(group.id.hex())
        until = time.monotonic() + PATIENCE_S
        while not await asyncio.to_thread(group.wait, ASK_S):
            if time.monotonic() >= until and await self._is_refused(group):
                await self._remove_one(group)
                return None
        return Group(group.id.hex(), run, name, held, is_whole=True)

    async def _is_refused(self, group: PlacementGroup) -> bool:
        """Whether Ray does not have what it needs; False: it has been created meanwhile."""
        until = time.monotonic() + DECIDED_S
        while True:
            row = await asyncio.to_thread(placement_group_table, group)
            if not row or row["state"] == REMOVED:  # by somebody else
                return True
            if row["state"] == CREATED:
                return False
            if row["stats"]["scheduling_state"] not in UNDECIDED:
                return True
            if time.monotonic() >= until:
                raise TimeoutError("it does not decide about a placement group")
            await asyncio.sleep(ASK_S / 10)

    def _free_name(self, run: Run) -> str:
        usual = f"{self._prefix}{run.job}.{run.attempt}"
        taken = {each.name for each in self._groups.get(run, ())}
        return next(
            name for n in count(1) if (name := usual if n == 1 else f"{usual}:{n}") not in taken
        )

    async def _remove(self, groups: Iterable[Group]) -> None:
        for each in groups:
            group = PlacementGroup(_group_id(each.id))
            if not each.is_whole:
                await self._is_refused(group)
            await self._remove_one(group)

    async def _remove_one(self, group: PlacementGroup) -> None:
        await asyncio.to_thread(remove_placement_group, group)
        self._forget(group.id.hex())

    def _forget(self, id_: str) -> None:
        now = time.monotonic()
        self._ids.discard(id_)
        self._removed.setdefault(id_, now)
        old = takewhile(lambda each: now - self._removed[each] > REMEMBERED_S, self._removed)
        for each in [*old]:
            del self._removed[each]

    def _is_ours(self, id_: str) -> bool:
        return id_ in self._ids or id_ in self._removed

    def _group(self, id_: str, row: Mapping[str, object]) -> Group | None:
        name = str(row["name"])
        if not name.startswith(self._prefix):
            return None
        job, _, attempt = name.removeprefix(self._prefix).partition(":")[0].rpartition(".")
        bundles, nodes = row["bundles"], row["bundles_to_node_id"]
        assert isinstance(bundles, dict)
        assert isinstance(nodes, dict)
        held: Held = Counter()
        for index, bundle in bundles.items():
            for what, much in bundle.items():
                held[(str(nodes.get(index, "")), what)] += round(much * 1000)
        is_whole = row["state"] == CREATED and all(nodes.values())
        return Group(id_, Run(job, int(attempt)), name, held, is_whole)


def _kept(groups: Iterable[Group], wanted: Held) -> tuple[list[Group], list[Group]]:
    """Those of a run's groups that are part of what it is to hold, and the others."""
    kept: list[Group] = []
    dropped: list[Group] = []
    for group in groups:
        fits = group.is_whole and _sum([*kept, group]) <= wanted
        (kept if fits else dropped).append(group)
    return kept, dropped


def _sum(groups: Iterable[Group]) -> Held:
    total: Held = Counter()
    for group in groups:
        total.update(group.held)
    return total


async def _has_room(missing: Held) -> bool:
    """Whether that is free, as far as Ray has heard."""
    free = await asyncio.to_thread(ray_state.free_resources)
    return all(
        node in free and free[node].left.get(what, 0.0) >= much / 1000
        for (node, what), much in missing.items()
    )


async def _why_not(missing: Held) -> str:
    free = await asyncio.to_thread(ray_state.free_resources)
    short = [
        (node, what, much / 1000, free[node].left.get(what, 0.0) if node in free else 0.0)
        for (node, what), much in sorted(missing.items())
    ]
    lacking = [each for each in short if each[3] < each[2]] or short
    node, what, much, left = lacking[0]
    return (
        f"It needs {much:g} {what}s of Ray's node {node[:8]}, which has {left:g} free: other users of the"
        " Ray cluster hold the rest."
    )


def _group_id(hex_id: str) -> object:
    from ray._raylet import PlacementGroupID

    return PlacementGroupID(bytes.fromhex(hex_id))
