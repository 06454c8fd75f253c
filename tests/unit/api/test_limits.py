"""Limits of requests: each is refused with the name of the limit, and nothing is taken in."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from typing import Any

import pytest
from starlette.testclient import TestClient

from tests.api_service import MemoryService, by_us
from trainmaster.api.app import create_app
from trainmaster.api.command_parsing import program_of
from trainmaster.api.request_limits import RequestLimits, kind_of
from trainmaster.config.limits import Limits, limits_of

V1 = "/api/v1"
YAML = {"content-type": "application/yaml"}


def limited(service: MemoryService, *stated: str) -> TestClient:
    service.limits = limits_of(stated)
    return TestClient(by_us(create_app(service)), base_url="http://localhost")  # type: ignore[arg-type]


def test_a_command_is_not_endless(service: MemoryService) -> None:
    client = limited(service, "command_bytes=1k")
    for command in ("x" * 1025, ["x" * 1000, "y" * 100]):
        answer = client.post(f"{V1}/jobs", json={"command": command})
        assert answer.status_code == 422
        assert "(the limit command_bytes)" in answer.json()["error"]["sentence"]
    assert service.known == {}


def test_the_program_of_a_long_quoted_command_is_found_by_its_beginning() -> None:
    assert program_of("python train.py --note '" + "x" * 1_000_000 + "'") == "train.py"


def test_yaml_has_a_limit_of_its_own(service: MemoryService) -> None:
    client = limited(service, "yaml_bytes=1k")
    body = "command: echo\n" + "# note\n" * 1000
    answer = client.post(f"{V1}/jobs", content=body, headers=YAML)
    assert answer.status_code == 413
    assert "(the limit yaml_bytes)" in answer.json()["error"]["sentence"]


@pytest.mark.parametrize(
    ("method", "path", "query", "kind"),
    [
        ("GET", "/api/v1/jobs", b"", "requests"),
        ("POST", "/api/v1/jobs", b"dry_run=true", "submissions"),
        ("GET", "/api/v1/jobs/1/logs", b"tail=5", "requests"),
        ("GET", "/api/v1/jobs/1/logs", b"tail=5&follow=true", "followers"),
        ("GET", "/api/v1/changes", b"", "followers"),
        ("POST", "/api/v1/jobs/1/cancel", b"", "requests"),
    ],
)
def test_what_a_request_counts_as(method: str, path: str, query: bytes, kind: str) -> None:
    assert kind_of({"method": method, "path": path, "query_string": query}) == kind


def test_requests_beyond_the_limit_are_refused_until_others_are_done() -> None:
    async def play() -> None:
        free, done = asyncio.Event(), []

        async def slow(scope: Any, receive: Any, send: Any) -> None:
            await free.wait()
            done.append(scope["path"])

        limits = replace(Limits(), followers=2)
        app = RequestLimits(slow, limits)
        said: list[dict[str, Any]] = []

        async def send(message: Any) -> None:
            said.append(message)

        scope = {"type": "http", "method": "GET", "path": "/api/v1/changes", "query_string": b""}
        two = [asyncio.create_task(app(scope, None, send)) for _ in range(2)]  # type: ignore[arg-type]
        await asyncio.sleep(0)
        await app(scope, None, send)  # type: ignore[arg-type]
        assert said[0]["status"] == 429
        assert "(the limit followers)" in json.loads(said[1]["body"])["error"]["sentence"]
        free.set()
        await asyncio.gather(*two)
        await app(scope, None, send)  # type: ignore[arg-type]
        assert len(done) == 3

    asyncio.run(play())
