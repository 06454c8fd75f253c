"""`GET /usage`: repeated questions cost once, and each caller gets its own."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from starlette.testclient import TestClient

from tests.api_service import MemoryService
from trainmaster.api.app import create_app
from trainmaster.api.routes import cluster

DAY_S = 86_400


class Front:
    """The API, asked with tokens; it remembers answers until the end of the test."""

    def __init__(self, service: MemoryService, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("trainmaster.daemon.reused_answer.TIMES", 1e9)
        self.service = service
        self.made: list[tuple[Any, ...]] = []
        make = service.usage

        async def usage(*asked: Any) -> Any:
            self.made.append(asked)
            return await make(*asked)

        monkeypatch.setattr(service, "usage", usage)
        self.client = TestClient(create_app(service), base_url="http://127.0.0.1:8470")  # type: ignore[arg-type]

    def ask(self, user: str, role: str, **query: Any) -> Any:
        _, token = asyncio.run(self.service.accounts.create_token(user, role))
        headers = {"Authorization": f"Bearer {token}"}
        answer = self.client.get("/api/v1/usage", params=query, headers=headers)
        assert answer.status_code == 200
        return answer


@pytest.fixture
def front(service: MemoryService, monkeypatch: pytest.MonkeyPatch) -> Front:
    return Front(service, monkeypatch)


def test_windows_of_all_who_see_the_same_are_answered_at_once(front: Front) -> None:
    month = front.service.now / 1000 - 30 * DAY_S
    first = front.ask("max", "operator", by="queue", since=month)
    for user, role in (("max", "operator"), ("zoe", "viewer"), ("eve", "admin")):
        again = front.ask(user, role, by="queue", since=month + 5)
        assert again.json() == first.json()
        assert again.headers["content-type"] == "application/json"
    assert len(front.made) == 1


def test_other_questions_have_answers_of_their_own(front: Front) -> None:
    front.ask("max", "operator")
    front.ask("ada", "user")
    front.ask("bob", "user")
    assert [asked[3] for asked in front.made] == [None, "ada", "bob"]
    now = front.service.now / 1000
    for query in ({"by": "day"}, {"queue": "vision"}, {"until": now}, {"until": now - 1}):
        front.ask("max", "operator", **query)
    assert len(front.made) == 7
    for _ in range(2):
        table = front.ask("max", "operator", format="csv")
        assert table.headers["content-type"].startswith("text/csv")
        assert "usage-by-user.csv" in table.headers["content-disposition"]
        assert table.text.startswith("user,")
    assert len(front.made) == 8


def test_a_large_answer_is_not_remembered(front: Front, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster, "KEPT_BYTES", 10)
    front.ask("max", "operator")
    front.ask("max", "operator")
    assert len(front.made) == 2
