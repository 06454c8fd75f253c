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
from trainmaster.engines.ray.ray_state import Free
from trainmaster.engines.ray.reservations import CREATED, GPU, Held, Reservations, _group_id
from trainmaster.model.job import Run

ONE, TWO = Run("1", 1), Run("2", 1)
FOUR: Held = Counter({("i1", GPU): 4000})


@dataclass
class Store:
    """Ray's table of placement groups."""

    rows: dict[str, dict[str, Any]] = field(default_factory=dict)
    made: int = 0
    is_away: bool = False
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
            "state": CREATED,
            "bundles": dict(enumerate(bundles)),
            "bundles_to_node_id": nodes,
        }
        return Group(self, PlacementGroup(_group_id(id_)).id)

    def remove(self, group: PlacementGroup | Group) -> None:
        self.rows.pop(group.id.hex())

    def table(self) -> dict[str, dict[str, Any]]:
        rows = dict(self.rows)
        self.asked.set()
        assert self.answer.wait(10)
        return rows


@dataclass
class Group:
    store: Store
    id: Any

    def wait(self, patience_s: float) -> bool:
        if self.store.is_away:
            raise ConnectionError("the control store is away")
        return True


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> Store:
    store = Store()
    store.answer.set()
    monkeypatch.setattr(reservations, "placement_group", store.create)
    monkeypatch.setattr(reservations, "remove_placement_group", store.remove)
    monkeypatch.setattr(reservations, "placement_group_table", store.table)
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


def test_what_others_hold_is_what_is_in_no_group_of_ours(store: Store) -> None:
    async def act() -> None:
        ours = Reservations("s1")
        await ours.reserve(ONE, FOUR)
        (id_,) = store.rows
        left = {GPU: 1.0, f"GPU_group_{id_}": 4.0, f"GPU_group_0_{id_}": 4.0, "GPU_group_ff": 2.0}
        assert ours.of_others("i1", Free({GPU: 8.0}, left)) == 3.0

    asyncio.run(act())
