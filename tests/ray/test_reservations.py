"""What runs hold on Ray, with placement groups in this process: what becomes of a failure in between."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
from ray.util.placement_group import PlacementGroup

from trainmaster.engines.ray import reservations
from trainmaster.engines.ray.held_devices import CPU, GPU
from trainmaster.engines.ray.node_link import NotReserved
from trainmaster.engines.ray.ray_state import Free
from trainmaster.engines.ray.reservations import CREATED, Held, Reservations, _group_id
from trainmaster.model.job import Run

ONE, TWO = Run("1", 1), Run("2", 1)
PENDING, QUEUED = "PENDING", "QUEUED"
FOUR: Held = Counter({("i1", GPU): 4000})


@dataclass
class Store:
    """Ray's table of placement groups."""

    rows: dict[str, dict[str, Any]] = field(default_factory=dict)
    made: int = 0
    is_away: bool = False
    free: float = 8.0
    """GPUs of the node."""
    undecided: int = 0
    """So many questions come before Ray has decided about a group."""
    removed_undecided: list[str] = field(default_factory=list)
    asked: threading.Event = field(default_factory=threading.Event)
    answer: threading.Event = field(default_factory=threading.Event)

    def create(
        self,
        bundles: Sequence[Mapping[str, float]],
        *,
        name: str,
        bundle_label_selector: Sequence[Mapping[str, str]],
        lifetime: str,
    ) -> Group:
        if name in [row["name"] for row in self.rows.values()]:
            raise ValueError(f"The placement group {name} already exists.")
        self.made += 1
        id_ = f"{self.made:036x}"
        nodes = dict(enumerate(each[reservations.NODE_ID] for each in bundle_label_selector))
        self.rows[id_] = {
            "name": name,
            "state": PENDING,
            "bundles": dict(enumerate(bundles)),
            "bundles_to_node_id": nodes,
            "stats": {"scheduling_state": QUEUED},
        }
        self.decide(self.rows[id_])
        return Group(self, PlacementGroup(_group_id(id_)).id)

    def decide(self, row: dict[str, Any]) -> None:
        if row["state"] != PENDING:
            return
        if self.undecided:
            self.undecided -= 1
            return
        wanted = sum(bundle.get(GPU, 0) for bundle in row["bundles"].values())
        has_room = wanted <= self.left()
        row["state"] = CREATED if has_room else PENDING
        row["stats"] = {"scheduling_state": "FINISHED" if has_room else "NO_RESOURCES"}

    def left(self) -> float:
        made = (row for row in self.rows.values() if row["state"] == CREATED)
        return self.free - sum(
            bundle.get(GPU, 0) for row in made for bundle in row["bundles"].values()
        )

    def free_resources(self) -> dict[str, Free]:
        return {"i1": Free({GPU: self.free}, {GPU: self.left()})}

    def remove(self, group: PlacementGroup | Group) -> None:
        row = self.rows.pop(group.id.hex())
        if row["stats"]["scheduling_state"] == QUEUED:
            self.removed_undecided.append(row["name"])

    def table(self, group: Group | None = None) -> dict[str, Any]:
        if group is not None:
            self.decide(self.rows[group.id.hex()])
            return self.rows[group.id.hex()]
        rows = dict(self.rows)
        self.asked.set()
        assert self.answer.wait(10)
        return rows


@dataclass
class Group:
    store: Store
    id: Any

    def wait(self, patience_s: float) -> bool:
        assert patience_s == int(patience_s), "Ray drops what is beyond whole seconds"
        if self.store.is_away:
            raise ConnectionError("the control store is away")
        return bool(self.store.rows[self.id.hex()]["state"] == CREATED)


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> Store:
    store = Store()
    store.answer.set()
    monkeypatch.setattr(reservations, "placement_group", store.create)
    monkeypatch.setattr(reservations, "remove_placement_group", store.remove)
    monkeypatch.setattr(reservations, "placement_group_table", store.table)
    monkeypatch.setattr(reservations.ray_state, "free_resources", store.free_resources)
    monkeypatch.setattr(reservations, "PATIENCE_S", 0.05)
    return store


def test_a_group_that_was_made_while_the_store_went_away_is_found_again(store: Store) -> None:
    async def act() -> None:
        ours = Reservations("s1")
        store.is_away = True
        with pytest.raises(ConnectionError):
            await ours.reserve(ONE, FOUR)
        store.is_away = False
        await ours.reserve(ONE, FOUR)
        assert len(store.rows) == 1
        assert await ours.reserved() == {ONE: {"i1": 4000}}

    asyncio.run(act())


def test_such_a_group_is_given_back_when_its_run_needs_nothing(store: Store) -> None:
    async def act() -> None:
        ours = Reservations("s1")
        store.is_away = True
        with pytest.raises(ConnectionError):
            await ours.reserve(ONE, FOUR)
        await ours.reserve(ONE, Counter())
        assert store.rows == {}

    asyncio.run(act())


def test_what_is_left_of_a_group_whose_node_has_died_is_still_reserved(store: Store) -> None:
    """Else nobody gives it back that does not know of the run any more."""

    async def act() -> None:
        ours = Reservations("s1")
        await ours.reserve(ONE, FOUR + Counter({("i2", GPU): 1000}))
        (row,) = store.rows.values()
        row["state"], row["bundles_to_node_id"][1] = "RESCHEDULING", ""
        assert await Reservations("s1").reserved() == {ONE: {"i1": 4000}}

    asyncio.run(act())


def test_a_run_that_changes_while_all_are_read_is_as_it_became(store: Store) -> None:
    async def act() -> None:
        ours = Reservations("s1")
        await ours.reserve(ONE, FOUR)
        store.answer.clear()
        store.asked.clear()
        reading = asyncio.create_task(ours.read())
        assert await asyncio.to_thread(store.asked.wait, 10)
        await ours.reserve(ONE, Counter())
        await ours.reserve(TWO, FOUR)
        store.answer.set()
        await reading
        await ours.reserve(TWO, FOUR)
        await ours.reserve(ONE, Counter())
        assert [row["name"] for row in store.rows.values()] == ["tm:s1:2.1"]

    asyncio.run(act())


def test_a_group_is_never_removed_before_ray_has_decided_about_it(store: Store) -> None:
    """Ray loses its devices then, until the raylet is restarted."""

    async def act() -> None:
        ours = Reservations("s1")
        store.undecided, store.free = 4, 3.0
        with pytest.raises(NotReserved, match="needs 4 GPUs"):
            await ours.reserve(ONE, FOUR)
        assert store.rows == {}
        store.undecided, store.free = 4, 8.0
        await ours.reserve(ONE, FOUR)
        assert await ours.reserved() == {ONE: {"i1": 4000}}
        assert store.removed_undecided == []

    asyncio.run(act())


def test_one_that_an_earlier_gateway_left_undecided_is_removed_once_it_is_decided(
    store: Store,
) -> None:
    async def act() -> None:
        store.undecided = 4
        bundles, on_i1 = [{GPU: 4.0}], [{reservations.NODE_ID: "i1"}]
        store.create(bundles, name="tm:s1:1.1", bundle_label_selector=on_i1, lifetime="detached")
        ours = Reservations("s1")
        await ours.read()
        await ours.reserve(ONE, Counter())
        assert store.rows == {}
        assert store.removed_undecided == []

    asyncio.run(act())


def test_what_a_run_had_before_is_had_again_where_others_hold_more(store: Store) -> None:
    async def act() -> None:
        ours = Reservations("s1")
        await ours.reserve(ONE, FOUR)
        await ours.reserve(TWO, FOUR)
        store.free = 8.5
        with pytest.raises(NotReserved):
            await ours.reserve(ONE, Counter({("i1", GPU): 5000}))
        assert await ours.reserved() == {ONE: {"i1": 4000}, TWO: {"i1": 4000}}

    asyncio.run(act())


def test_groups_that_are_removed_are_forgotten_once_their_devices_are_free(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def act() -> None:
        ours = Reservations("s1")
        await ours.reserve(ONE, FOUR)
        (first,) = store.rows
        await ours.reserve(ONE, Counter())
        still = Free({GPU: 8.0}, {GPU: 4.0, f"GPU_group_{first}": 4.0})
        assert ours.of_others(still, GPU) == 0.0
        monkeypatch.setattr(reservations, "REMEMBERED_S", 0.0)
        await ours.reserve(TWO, FOUR)
        await ours.reserve(TWO, Counter())
        assert ours.of_others(still, GPU) == 4.0
        assert len(ours._removed) == 1
        assert not ours._ids
        assert not [*ours._locks]

    asyncio.run(act())


def test_what_others_hold_is_what_is_in_no_group_of_ours(store: Store) -> None:
    async def act() -> None:
        ours = Reservations("s1")
        await ours.reserve(ONE, FOUR)
        (id_,) = store.rows
        left = {GPU: 1.0, f"GPU_group_{id_}": 4.0, f"GPU_group_0_{id_}": 4.0, "GPU_group_ff": 2.0}
        assert ours.of_others(Free({GPU: 8.0}, left), GPU) == 3.0
        cores = Free({CPU: 8.0}, {CPU: 2.0, f"CPU_group_{id_}": 4.0, "CPU_group_ff": 2.0})
        assert ours.of_others(cores, CPU) == 2.0

    asyncio.run(act())
