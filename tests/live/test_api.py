"""The API on a real socket: streams that go on, large output, many jobs."""

from __future__ import annotations

import asyncio
import base64
import json
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import uvicorn

from tests.api_service import MemoryService, by_us
from trainmaster.api.app import create_app

pytestmark = pytest.mark.live

V1 = "/api/v1"
PATIENCE_S = 60.0


class Served:
    """A server in a thread with an event loop of its own, and the service that it speaks for."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.service: MemoryService
        self.loop: asyncio.AbstractEventLoop
        self._ready = threading.Event()
        self._server: uvicorn.Server | None = None
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()))

    async def _serve(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.service = MemoryService(self.folder)
        config = uvicorn.Config(
            by_us(create_app(self.service)),
            port=0,
            log_level="error",
            lifespan="off",
            timeout_graceful_shutdown=1,
        )
        self._server = uvicorn.Server(config)
        serving = asyncio.ensure_future(self._server.serve())
        while not self._server.started and not serving.done():
            await asyncio.sleep(0.01)
        self._ready.set()
        await serving

    def start(self) -> None:
        self._thread.start()
        assert self._ready.wait(PATIENCE_S)

    def stop(self) -> None:
        assert self._server is not None
        self._server.should_exit = True
        self._thread.join(PATIENCE_S)
        assert not self._thread.is_alive()

    @property
    def url(self) -> str:
        assert self._server is not None
        port = self._server.servers[0].sockets[0].getsockname()[1]
        return f"http://127.0.0.1:{port}"

    def do(self, work: Any) -> Any:
        """Run a coroutine of the service where it lives."""
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(PATIENCE_S)


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    server = Served(tmp_path)
    server.start()
    try:
        yield server
    finally:
        server.stop()


@pytest.fixture
def client(served: Served) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=served.url, timeout=PATIENCE_S) as client:
        yield client


class Watched:
    """Events of a stream, collected by a thread until it ends or is left."""

    def __init__(self, url: str, headers: dict[str, str] | None = None) -> None:
        self.found: list[dict[str, str]] = []
        self.status = 0
        self._url, self._headers = url, headers or {}
        self._leaving = threading.Event()
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        with (
            httpx.Client(timeout=PATIENCE_S) as client,
            client.stream("GET", self._url, headers=self._headers) as answer,
        ):
            self.status = answer.status_code
            event: dict[str, str] = {}
            for line in answer.iter_lines():
                name, _, value = line.partition(": ")
                if not line and event:
                    self.found.append(event)
                    event = {}
                elif name:
                    event[name] = value
                if self._leaving.is_set():
                    return

    def until(self, condition: Callable[[], bool], what: str) -> None:
        end = time.monotonic() + PATIENCE_S
        while time.monotonic() < end:
            if condition():
                return
            time.sleep(0.01)
        raise AssertionError(f"waited in vain for {what}: {self.found}")

    def ended(self) -> bool:
        return not self._thread.is_alive()

    def leave(self) -> None:
        self._leaving.set()

    @property
    def output(self) -> bytes:
        said = (json.loads(each["data"]) for each in self.found if each.get("event") == "log")
        return b"".join(base64.b64decode(each["bytes"]) for each in said)


def submit(client: httpx.Client, **job: Any) -> str:
    answer = client.post(f"{V1}/jobs", json={"command": "true", **job})
    assert answer.status_code == 201, answer.text
    return str(answer.json()["jobs"][0]["id"])


def test_a_followed_log_ends_with_its_job(served: Served, client: httpx.Client) -> None:
    job = submit(client)
    served.service.write(job, b"before\n")
    watched = Watched(f"{served.url}{V1}/jobs/{job}/logs?follow=true")
    watched.until(lambda: watched.output == b"before\n", "what was there")
    served.service.write(job, b"\xff\x00 binary \r progress")
    watched.until(lambda: watched.output.endswith(b"progress"), "what came")
    served.service.rotate(job)
    served.service.write(job, b"after rotation\n")
    watched.until(lambda: watched.output.endswith(b"rotation\n"), "what came after rotation")
    seen = watched.found[-1]["id"]
    served.do(served.service.fail_and_retry(job))
    served.service.write(job, b"second attempt\n", attempt=2)
    watched.until(lambda: watched.output.endswith(b"second attempt\n"), "the next attempt")
    served.do(served.service.finish(job, 3))
    watched.until(watched.ended, "the end")
    assert json.loads(watched.found[-1]["data"]) == {"state": "failed", "exit_code": 3}
    assert watched.output == b"before\n\xff\x00 binary \r progressafter rotation\nsecond attempt\n"

    again = Watched(
        f"{served.url}{V1}/jobs/{job}/logs?follow=true&attempt=1",
        {"Last-Event-ID": watched.found[0]["id"]},
    )
    again.until(again.ended, "the end")
    assert again.output == b"\xff\x00 binary \r progressafter rotation\n"
    rest = Watched(
        f"{served.url}{V1}/jobs/{job}/logs?follow=true&attempt=1", {"Last-Event-ID": seen}
    )
    rest.until(rest.ended, "the end")
    assert rest.output == b""


def test_a_follower_hears_of_suspensions(served: Served, client: httpx.Client) -> None:
    job = submit(client)
    served.service.write(job, b"before\n")
    watched = Watched(f"{served.url}{V1}/jobs/{job}/logs?follow=true")
    watched.until(lambda: watched.output == b"before\n", "what was there")
    client.post(f"{V1}/jobs/{job}/suspend").raise_for_status()
    watched.until(lambda: len(watched.found) == 2, "the suspension")
    assert watched.found[1]["event"] == "state"
    said = json.loads(watched.found[1]["data"])
    assert said["state"] == "suspended"
    assert said["sentence"]
    client.post(f"{V1}/jobs/{job}/resume").raise_for_status()
    watched.until(lambda: len(watched.found) > 2, "the resumption")
    assert json.loads(watched.found[2]["data"]) == {
        "state": "running",
        "transition": None,
        "sentence": None,
    }
    served.do(served.service.finish(job))
    watched.until(watched.ended, "the end")


def test_what_an_attempt_wrote_last_comes_before_the_next(
    served: Served, client: httpx.Client
) -> None:
    job = submit(client)
    served.service.write(job, b"start\n")
    watched = Watched(f"{served.url}{V1}/jobs/{job}/logs?follow=true")
    watched.until(lambda: watched.output == b"start\n", "the start")
    big = b"x" * (1 << 20)
    served.service.write(job, big)
    for attempt in (2, 3):
        served.do(served.service.fail_and_retry(job))
        served.service.write(job, b"attempt %d\n" % attempt, attempt=attempt)
    served.do(served.service.finish(job))
    watched.until(watched.ended, "the end")
    assert watched.output == b"start\n" + big + b"attempt 2\nattempt 3\n"
    seen = {"Last-Event-ID": watched.found[0]["id"]}
    again = Watched(f"{served.url}{V1}/jobs/{job}/logs?follow=true&tail=1", seen)
    again.until(again.ended, "the end")
    assert again.output == big + b"attempt 2\nattempt 3\n"


def test_all_ranks_are_followed_together(served: Served, client: httpx.Client) -> None:
    job = submit(client, gpus=2)
    for rank in (0, 1):
        served.service.write(job, b"one\ntwo\nthree\n", rank=rank)
    watched = Watched(f"{served.url}{V1}/jobs/{job}/logs?follow=true&rank=all&tail=1")
    watched.until(lambda: len(watched.output) == 12, "both ranks")
    served.do(served.service.finish(job))
    watched.until(watched.ended, "the end")
    said = [json.loads(each["data"]) for each in watched.found if each.get("event") == "log"]
    assert {each["rank"] for each in said} == {0, 1}
    assert watched.output == b"three\nthree\n"


def test_changes_arrive_while_they_happen_and_leaving_is_noticed(
    served: Served, client: httpx.Client
) -> None:
    watched = Watched(f"{served.url}{V1}/changes")
    watched.until(lambda: watched.status == 200, "the stream")
    job = submit(client)
    watched.until(
        lambda: [e["event"] for e in watched.found] == ["submitted", "started"], "the start"
    )
    watched.leave()
    client.post(f"{V1}/jobs/{job}/cancel")
    watched.until(watched.ended, "the reader to leave")


def test_a_large_output_is_streamed(served: Served, client: httpx.Client) -> None:
    job = submit(client)
    line = b"x" * (1 << 20) + b"\n"
    for _ in range(64):
        served.service.write(job, line)
    served.service.write(job, b"last\n")
    size = 0
    with client.stream("GET", f"{V1}/jobs/{job}/logs") as answer:
        for piece in answer.iter_bytes():
            size += len(piece)
    assert size == 64 * len(line) + 5
    assert client.get(f"{V1}/jobs/{job}/logs?tail=1").content == b"last\n"
    assert len(client.get(f"{V1}/jobs/{job}/logs?tail=2").content) == len(line) + 5


def test_ten_thousand_jobs_come_in_at_once_and_are_all_listed(
    served: Served, client: httpx.Client
) -> None:
    many = [{"command": "true", "name": f"job-{number}"} for number in range(10_000)]
    answer = client.post(f"{V1}/jobs", json={"jobs": many})
    assert answer.status_code == 201
    assert len(answer.json()["jobs"]) == 10_000
    seen: list[str] = []
    before = None
    while True:
        query = {"limit": 1000} | ({"before": before} if before else {})
        page = client.get(f"{V1}/jobs", params=query).json()
        seen += [each["id"] for each in page["jobs"]]
        before = page["next"]
        if before is None:
            break
    assert seen == [str(number) for number in range(10_000, 0, -1)]
