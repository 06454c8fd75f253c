"""Asking the policy lab: what is refused, and who sees whose comparisons."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

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
