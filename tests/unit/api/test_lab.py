"""Asking the policy lab: what is refused, and who sees whose comparisons."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from tests.api_service import MemoryService, by_us
from tests.live.daemons import until
from trainmaster.api.app import create_app
from trainmaster.api.routes import lab
from trainmaster.config.validation import ConfigError, checked

V1 = "/api/v1"
GOOD: dict[str, Any] = {
    "trace": {"like": "philly"},
    "cluster": "2x4",
    "policies": [{"name": "fifo"}],
}


@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        ({"policies": [{"name": "fifoo"}]}, "There is no policy 'fifoo'; did you mean fifo?"),
        ({"policies": [{"name": "fifo"}] * 2}, "A policy is named twice"),
        ({"trace": {"like": "venus"}}, "'venus'; there are philly, alibaba."),
        ({"trace": {}}, "needs either content or like"),
        ({"trace": {"content": "x", "like": "philly"}}, "needs either content or like"),
        ({"cluster": "many"}, "cluster"),
        ({"policies": []}, "policies"),
    ],
)
def test_a_question_that_cannot_be_answered_is_refused(
    client: TestClient, changed: dict[str, Any], sentence: str
) -> None:
    answer = client.post(f"{V1}/lab", json={**GOOD, **changed})
    assert answer.status_code == 422
    assert sentence in answer.json()["error"]["sentence"]
    assert client.get(f"{V1}/lab").json() == {"comparisons": []}


def test_a_trace_that_is_too_large_is_refused(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lab, "MOST_TRACE", 10)
    answer = client.post(f"{V1}/lab", json={**GOOD, "trace": {"content": "x" * 11}})
    assert answer.status_code == 413
    assert "larger than 0 MiB" in answer.json()["error"]["sentence"]


def test_an_unknown_one_is_not_found(client: TestClient) -> None:
    assert client.get(f"{V1}/lab/abc").status_code == 404
    assert client.delete(f"{V1}/lab/abc").status_code == 404
    assert client.get(f"{V1}/lab/abc/report").status_code == 404


PROGRAM = """
import sys
from pathlib import Path
from trainmaster.whatif import child_process
child_process.bounded()
folder = Path(sys.argv[1])
(folder / "report.zip").write_bytes(b"PK")
(folder / "result.json").write_text('{"policies": ["fifo"]}')
"""


def test_a_comparison_is_asked_for_and_fetched(
    service: MemoryService, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "simulates.py").write_text(PROGRAM)
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{os.environ.get('PYTHONPATH', '')}")
    monkeypatch.setattr(lab, "PROGRAM", "simulates")
    with TestClient(by_us(create_app(service)), base_url="http://localhost") as client:
        made = client.post(f"{V1}/lab", json=GOOD).json()
        assert (made["state"], made["title"]) == (
            "running",
            "a trace like philly on 2x4 under fifo",
        )
        place = f"{V1}/lab/{made['id']}"
        found = until(
            lambda: (row := client.get(place).json())["state"] == "done" and row, "its end"
        )
        assert found["result"] == {"policies": ["fifo"]}
        assert client.get(f"{place}/report").content == b"PK"
        assert [row["id"] for row in client.get(f"{V1}/lab").json()["comparisons"]] == [made["id"]]
        assert client.delete(place).json()["state"] == "done", "what has ended stays as it is"


def test_a_question_says_all_that_its_process_needs(tmp_path: Path) -> None:
    asked = checked(
        lab.LabQuestion, {**GOOD, "policies": [{"name": "las", "options": {"a": True}}]}
    )
    request = asked.request()
    assert request["policies"] == [{"name": "las", "options": {"a": "on"}}]
    assert request["trace"]["jobs"] == 1000
    assert asked.title == "a trace like philly on 2x4 under las"
    with pytest.raises(ConfigError):
        checked(lab.LabQuestion, {**GOOD, "more": 1})


def test_a_standby_neither_answers_nor_removes_what_the_leader_keeps(
    service: MemoryService,
) -> None:
    kept = service.folder / "simulations" / "abc" / "result.json"
    kept.parent.mkdir(parents=True)
    kept.write_text("{}")
    service.role, service.store_name = "standby", ""
    with TestClient(by_us(create_app(service)), base_url="http://localhost") as client:
        for method, path, body in (
            ("GET", "lab", None),
            ("POST", "lab", GOOD),
            ("GET", "lab/abc", None),
            ("POST", "whatif", {"policies": [{"name": "fifo"}]}),
            ("GET", "whatif", None),
            ("DELETE", "whatif/abc", None),
        ):
            answer = client.request(method, f"{V1}/{path}", json=body)
            assert (answer.status_code, path) == (503, path)
            assert "standby" in answer.json()["error"]["sentence"]
    assert kept.exists()
