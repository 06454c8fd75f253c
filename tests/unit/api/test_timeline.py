"""Who held which devices when, as operators, viewers and users are told: `GET /timeline`."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from starlette.testclient import TestClient

from tests.api_service import MemoryService
from trainmaster.api.app import create_app
from trainmaster.daemon import timeline
from trainmaster.model.units import HOUR, MINUTE
from trainmaster.store.rows import DAY_MS, ChargeRow, SpanRow


class Records:
    """A driver with records of two users: what bob's jobs had before, and what ada's runs on now."""

    def __init__(self, service: MemoryService) -> None:
        self.clock = SimpleNamespace(now=lambda: service.now)
        self.store = self.usage = self
        self.jobs = {"7": SimpleNamespace(name="resnet")}
        now = service.now
        self.stored = [
            SpanRow("3", "bob", "gpt", 2, "\nn0:2", now - HOUR, now - MINUTE, "failed"),
        ]
        charge = ChargeRow("7", "ada", "main", "gpu", now - MINUTE, now, 0, 0, None, "USD")
        self.open = [replace(charge, attempt=1, devices="\nn0:0,1")]
        self.asked: list[tuple[Any, ...]] = []

    def spans(self, *asked: Any) -> list[SpanRow]:
        self.asked.append(asked)
        return self.stored

    def open_spans(self, jobs: object, now: int) -> Iterator[ChargeRow]:
        return iter(self.open)


class Front:
    """The API, asked with tokens."""

    def __init__(self, service: MemoryService) -> None:
        self.service, self.records = service, Records(service)
        service.driver = self.records  # type: ignore[attr-defined]
        self.client = TestClient(create_app(service), base_url="http://127.0.0.1:8470")  # type: ignore[arg-type]

    def ask(self, user: str, role: str, query: str = "") -> Any:
        _, token = asyncio.run(self.service.accounts.create_token(user, role))
        headers = {"Authorization": f"Bearer {token}"}
        return self.client.get(f"/api/v1/timeline{query}", headers=headers)

    def spans(self, user: str, role: str) -> list[dict[str, Any]]:
        spans: list[dict[str, Any]] = self.ask(user, role).json()["spans"]
        return spans


@pytest.fixture
def front(service: MemoryService) -> Front:
    return Front(service)


def test_operators_are_told_all_and_viewers_too(front: Front) -> None:
    for role in ("operator", "viewer"):
        running, ended = front.spans("zoe", role)
        assert (running["job"], running["name"], running["user"]) == ("7", "resnet", "ada")
        assert (running["devices"], running["goes_on"]) == (["n0:0", "n0:1"], True)
        assert (ended["job"], ended["ended"], ended["goes_on"]) == ("3", "failed", False)


def test_a_plain_user_is_told_of_others_that_they_held_devices_and_no_more(front: Front) -> None:
    own, others = front.spans("ada", "user")
    assert (own["job"], own["user"]) == ("7", "ada")
    now_s = front.service.now / 1000
    assert others == {
        "job": None,
        "name": "",
        "user": "",
        "attempt": None,
        "devices": ["n0:2"],
        "from_s": now_s - 3600,
        "to_s": now_s - 60,
        "goes_on": False,
        "ended": None,
    }


def test_an_answer_is_used_again_by_all_who_see_the_same(
    front: Front, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trainmaster.daemon.reused_answer.TIMES", 1e6)
    monkeypatch.setattr("trainmaster.api.routes.overview.WAITS_S", 0.0)
    front = Front(front.service)
    for user, role in (("zoe", "viewer"), ("yan", "viewer"), ("max", "operator"), ("eve", "admin")):
        assert len(front.spans(user, role)) == 2
    assert len(front.records.asked) == 2
    front.spans("ada", "user")
    assert [span["user"] for span in front.spans("bob", "user")] == ["", "bob"]


def test_long_times_and_many_nodes_are_refused_with_a_sentence(front: Front) -> None:
    end = front.service.now / 1000
    long = front.ask("zoe", "viewer", f"?since={end - 32 * DAY_MS / 1000}")
    assert (long.status_code, long.json()["error"]["sentence"]) == (
        422,
        "Ask for 31 days at most: give a later `since`.",
    )
    nodes = "&".join(f"node=n{number}" for number in range(17))
    many = front.ask("zoe", "viewer", f"?{nodes}")
    assert (many.status_code, many.json()["error"]["sentence"]) == (
        422,
        "Name 16 nodes at most, or none for all of them.",
    )
    assert front.records.asked == []
    assert front.ask("zoe", "viewer", "?" + "&".join(["node=n0"] * 17)).status_code == 200


def test_running_ones_count_too_for_how_many_are_told(
    front: Front, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(timeline, "MOST", 3)
    places = [f"\nn0:{number}" for number in range(5)]
    front.records.open = [replace(front.records.open[0], devices=each) for each in places]
    said = front.ask("zoe", "viewer").json()
    assert (len(said["spans"]), said["is_cut"]) == (3, True)
