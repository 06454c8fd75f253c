"""What-ifs over the API: who may ask, what is refused, what is said when there is nothing to say."""

from __future__ import annotations

import time
from typing import Any

import pytest
from starlette.testclient import TestClient

from tests.api_service import MemoryService, by_us
from trainmaster.api.app import create_app
from trainmaster.config.limits import limits_of
from trainmaster.daemon.service_api import TooMany

PATH = "/api/v1/whatif"


def sentence(answer: Any) -> str:
    return str(answer.json()["error"]["sentence"])


def until_ended(client: TestClient, id: str) -> dict[str, Any]:
    end = time.monotonic() + 60
    while time.monotonic() < end:
        row: dict[str, Any] = client.get(f"{PATH}/{id}").json()
        if row["state"] not in ("waiting", "running"):
            return row
        time.sleep(0.05)
    raise AssertionError("it does not end")


def test_what_cannot_be_answered_is_one_sentence(service: MemoryService) -> None:
    app = by_us(create_app(service))
    with TestClient(app, base_url="http://127.0.0.1:8470") as client:
        asked = client.post(PATH, json={"policies": [{"name": "fifo"}], "more_nodes": 2})
        assert asked.status_code == 200
        row = asked.json()
        assert row["title"] == "the last day under fifo with 2 more nodes"
        ended = until_ended(client, row["id"])
        assert (ended["state"], ended["result"]) == ("failed", None)
        assert "nothing.db" in ended["says"]
        assert [each["id"] for each in client.get(PATH).json()["whatifs"]] == [row["id"]]
        assert client.delete(f"{PATH}/{row['id']}").json()["state"] == "failed"


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({"since_s": 0}, "since_s"),
        ({"policies": [{"name": "fifo"}] * 5}, "policies"),
        ({"set_queues": {"a": {"guaranteed": 3}}}, "guaranteed"),
        ({"queue_now": True, "cluster": {}}, "ask for more nodes"),
        ({"policy": "fifo"}, "policy"),
    ],
)
def test_a_bad_question_is_refused(client: TestClient, body: dict[str, Any], said: str) -> None:
    answer = client.post(PATH, json=body)
    assert answer.status_code == 422
    assert said in sentence(answer)
    assert client.get(PATH).json() == {"whatifs": []}


def test_what_nobody_asked_for_is_not_there(client: TestClient) -> None:
    assert client.get(f"{PATH}/abc123").status_code == 404


def test_the_daily_comparison_says_why_there_is_none(
    client: TestClient, service: MemoryService
) -> None:
    said = client.get(f"{PATH}/daily").json()
    assert (said["state"], said["policy"], said["better"]) == ("waiting", "fifo", None)
    service.limits = limits_of(["daily_whatif=0"])
    off = client.get(f"{PATH}/daily").json()
    assert off["state"] == "off"
    assert "daily_whatif=0" in off["sentence"]


def test_everybody_may_see_the_daily_comparison_and_operators_alone_ask(
    service: MemoryService,
) -> None:
    app = create_app(service)
    with TestClient(by_us(app), base_url="http://127.0.0.1:8470") as us:
        asked = us.post(PATH, json={"policies": [{"name": "fifo"}]}).json()["id"]
        token = us.post("/api/v1/tokens", json={"user": "eve", "role": "user"}).json()["token"]
        bearer = {"Authorization": f"Bearer {token}"}
        assert us.get(f"{PATH}/{asked}").status_code == 200
    with TestClient(app, base_url="http://127.0.0.1:8470", headers=bearer) as eve:
        assert eve.get(f"{PATH}/daily").status_code == 200
        assert eve.get(f"{PATH}/{asked}").status_code == 404
        refused = [eve.get(PATH), eve.post(PATH, json={}), eve.delete(f"{PATH}/{asked}")]
        assert [answer.status_code for answer in refused] == [403, 403, 403]


def test_one_too_many_is_refused_before_the_state_is_stored(
    service: MemoryService, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored = 0
    address = service.address_of_state

    async def counted() -> str:
        nonlocal stored
        stored += 1
        return await address()

    app = create_app(service)
    full = TooMany("Wait.")

    def refuse(_user: str) -> None:
        raise full

    monkeypatch.setattr(service, "address_of_state", counted)
    monkeypatch.setattr(app.state.simulations, "refuse_too_many", refuse)
    with TestClient(by_us(app), base_url="http://127.0.0.1:8470") as client:
        assert client.post(PATH, json={"policies": [{"name": "fifo"}]}).status_code == 429
    assert stored == 0
