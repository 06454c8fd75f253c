"""What a job, a user or a broken machine cannot do to the manager."""

from __future__ import annotations

import contextlib
import json
import os
import resource
import socket
import sqlite3
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.error import HTTPError
from urllib.parse import urlsplit

import pytest

from tests.live.daemons import PATIENCE_S, LiveDaemon, live, sweep, until
from trainmaster.cli.main import main

pytestmark = pytest.mark.live
FEW = 256
"""Files that a program may open where its user has set no more."""


def test_a_job_that_is_lost_again_and_again_has_failed(tmp_path: Path) -> None:
    limits = ("--limit", "losses=2", "--limit", "retry_delay=50ms")
    with live(tmp_path, "--slots", "2", *limits) as daemon:
        lost = daemon.submit(command="kill -9 $PPID; sleep 100", workdir=str(tmp_path), retries=0)
        ended = daemon.until_state(lost, "failed")
        assert (ended["end_reason"]["code"], ended["end_reason"]["times"]) == ("Lost", 3)
        assert ended["attempt"] == 3
        story = daemon.call("GET", f"/api/v1/jobs/{lost}/story")["story"]
        assert [each["what"] for each in story].count("lost") == 3


def test_retries_do_not_follow_each_other_at_once(tmp_path: Path) -> None:
    with live(tmp_path, "--slots", "2", "--limit", "retry_delay=300s") as daemon:
        fails = daemon.submit(command="exit 1", workdir=str(tmp_path), retries=1000)
        begun = time.monotonic()
        found = daemon.until_state(fails, "pending")
        while (found["reason"] or {}).get("code") != "RetryDelay":
            assert time.monotonic() < begun + 60
            time.sleep(0.1)
            found = daemon.until_state(fails, "pending")
        assert "attempt 2 of 1001, failed 1 time" in found["reason"]["sentence"]
        daemon.kill()
        daemon.start()
        daemon.until_active()
        found = daemon.until_state(fails, "pending")
        assert (found["attempt"], found["reason"]["code"]) == (1, "RetryDelay")
        daemon.call("POST", f"/api/v1/jobs/{fails}/cancel")
        daemon.until_state(fails, "cancelled")


STUBBORN = "trap '' TERM; touch ready; while :; do sleep 0.1; done"


def refused(daemon: LiveDaemon, method: str, path: str, body: object = None) -> tuple[int, str]:
    """The status and the sentence of what the manager refuses."""
    with pytest.raises(HTTPError) as no:
        daemon.call(method, path, body)
    return no.value.code, json.loads(no.value.read())["error"]["sentence"]


def stubborn(daemon: LiveDaemon, folder: Path, grace: str) -> str:
    """A job that does not end when it is asked to."""
    job = daemon.submit(command=STUBBORN, workdir=str(folder), grace_period=grace)
    until((folder / "ready").exists, "the trap to be set")
    return job


def test_a_grace_period_has_a_limit_and_cancel_now_has_none(tmp_path: Path) -> None:
    with live(tmp_path, "--slots", "2", "--max-grace", "1h") as daemon:
        asked = {"command": "true", "workdir": str(tmp_path), "grace_period": "3650d"}
        code, said = refused(daemon, "POST", "/api/v1/jobs", asked)
        assert code == 422
        assert "its limit max_grace" in said
        job = stubborn(daemon, tmp_path, "1h")
        code, said = refused(daemon, "PATCH", f"/api/v1/jobs/{job}", {"grace_period": "2h"})
        assert code == 422
        daemon.call("POST", f"/api/v1/jobs/{job}/cancel")
        until(lambda: daemon.job(job)["transition"] == "stopping", "it to be stopping")
        code, said = refused(daemon, "POST", f"/api/v1/jobs/{job}/suspend")
        assert (code, "being ended" in said) == (409, True)
        daemon.call("POST", f"/api/v1/jobs/{job}/cancel?now=true")
        daemon.until_state(job, "cancelled")


def test_a_grace_period_can_be_changed_while_a_job_runs_and_shrinks_with_the_limit(
    tmp_path: Path,
) -> None:
    with live(tmp_path, "--slots", "2", "--max-grace", "1h") as daemon:
        job = stubborn(daemon, tmp_path, "1h")
        daemon.call("PATCH", f"/api/v1/jobs/{job}", {"grace_period": "100ms"})
        daemon.call("POST", f"/api/v1/jobs/{job}/cancel")
        daemon.until_state(job, "cancelled")
        (tmp_path / "ready").unlink()
        other = stubborn(daemon, tmp_path, "1h")
        daemon.until_state(other, "running")
        daemon.kill()
        daemon.arguments = ("--slots", "2", "--max-grace", "100ms")
        daemon.start()
        daemon.until_active()
        daemon.call("POST", f"/api/v1/jobs/{other}/cancel")
        daemon.until_state(other, "cancelled")


# -- requests ----------------------------------------------------------------------------------------------

NARROW = {
    "connections": "6",
    "header_deadline": "1s",
    "body_deadline": "1s",
    "array_elements": "20",
    "jobs_per_request": "30",
    "live_jobs": "40",
    "queue_names": "3",
}


@pytest.fixture(scope="module")
def narrow(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveDaemon]:
    """A manager with hardly any room."""
    limits = [word for each in NARROW.items() for word in ("--limit", "=".join(each))]
    with live(tmp_path_factory.mktemp("narrow"), "--slots", "2", *limits) as started:
        yield started


def connected(daemon: LiveDaemon) -> socket.socket:
    where = urlsplit(str(daemon.url))
    return socket.create_connection((str(where.hostname), int(where.port or 0)), timeout=60)


def answered(sock: socket.socket) -> str:
    """All that comes until the other side closes."""
    pieces = []
    while piece := sock.recv(4096):
        pieces.append(piece)
    return b"".join(pieces).decode()


def test_a_request_that_does_not_come_is_not_waited_for(narrow: LiveDaemon) -> None:
    with connected(narrow) as silent, connected(narrow) as half:
        half.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n")
        for sock in (silent, half):
            said = answered(sock)
            assert said.startswith("HTTP/1.1 408 ")
            assert "(the limit header_deadline)" in said


def test_a_body_that_does_not_come_is_not_waited_for(narrow: LiveDaemon) -> None:
    head = "POST /api/v1/jobs HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    with connected(narrow) as sock:
        head += "".join(f"{name}: {value}\r\n" for name, value in narrow.bearer().items())
        sock.sendall(f"{head}Content-Length: 1000\r\nConnection: close\r\n\r\n{{".encode())
        said = answered(sock)
        assert said.startswith("HTTP/1.1 408 ")
        assert "(the limit body_deadline)" in said


def test_connections_beyond_the_limit_are_refused_and_room_comes_back(narrow: LiveDaemon) -> None:
    with contextlib.ExitStack() as stack:
        for _ in range(6):
            stack.enter_context(connected(narrow))
        said = answered(stack.enter_context(connected(narrow)))
        assert said.startswith("HTTP/1.1 503 ")
        assert "(the limit connections)" in said
    until(lambda: narrow.call("GET", "/healthz"), "room for another")


@pytest.mark.parametrize(
    ("asked", "status", "limit"),
    [
        ({"command": "true", "array": 21}, 422, "array_elements"),
        ({"jobs": [{"command": "true", "array": 16}] * 2}, 422, "jobs_per_request"),
        ({"jobs": [{"command": "true"}] * 31}, 422, "jobs_per_request"),
    ],
)
def test_a_few_bytes_do_not_make_any_number_of_jobs(
    narrow: LiveDaemon, asked: dict[str, object], status: int, limit: str
) -> None:
    code, said = refused(narrow, "POST", "/api/v1/jobs", asked)
    assert (code, f"(the limit {limit})" in said) == (status, True), said


def test_a_workdir_with_a_name_that_no_system_has_is_refused(narrow: LiveDaemon) -> None:
    for folder in ("/" + "x" * 300, "/x" * 3000):
        asked = {"command": "true", "workdir": folder}
        code, said = refused(narrow, "POST", "/api/v1/jobs", asked)
        assert (code, "workdir" in said) == (422, True), said


def test_live_jobs_and_names_of_queues_have_a_limit(narrow: LiveDaemon) -> None:
    for name in ("first", "second"):
        narrow.submit(command="true", array=20, held=True, name=name)
    code, said = refused(narrow, "POST", "/api/v1/jobs", {"command": "true"})
    assert (code, "(the limit live_jobs)" in said) == (429, True), said
    for name in ("first", "second"):
        narrow.call("POST", f"/api/v1/jobs/{name}/cancel")  # by its name, all of an array
    for name in ("a", "b"):
        narrow.submit(command="true", queue=name, held=True)
    code, said = refused(narrow, "POST", "/api/v1/jobs", {"command": "true", "queue": "c"})
    assert (code, "(the limit queue_names)" in said) == (422, True), said


def test_the_log_says_who_asked_for_what(narrow: LiveDaemon, tmp_path: Path) -> None:
    job = narrow.submit(command="sleep 600", workdir=str(tmp_path))
    narrow.call("POST", f"/api/v1/jobs/{job}/cancel", **narrow.bearer_of("ada", "operator"))
    log = narrow.folder / "audit.log"

    def line() -> dict[str, object] | None:
        said = [json.loads(each) for each in log.read_text().splitlines()]
        return next((each for each in said if each["path"].endswith(f"/{job}/cancel")), None)

    said = until(line, "the line")
    assert (said["verb"], said["status"], said["user"]) == ("POST", 200, "ada")
    assert (said["role"], said["via"], said["uid"]) == ("operator", "token", os.getuid())
    assert said["peer"].startswith("127.0.0.1:")
    assert said["token"] in [each["id"] for each in narrow.call("GET", "/api/v1/tokens")["tokens"]]
    assert log.stat().st_mode & 0o777 == 0o600
    assert "tm_" not in log.read_text()


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1"])
def test_an_address_on_the_network_is_refused(
    host: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["up", "--data", str(tmp_path / "data"), "--host", host]) == 2
    assert "in the clear" in capsys.readouterr().err
    assert not (tmp_path / "data").exists()


def test_the_manager_may_open_more_files_than_its_jobs(tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    daemon = LiveDaemon(tmp_path, "--slots", "1", checkout=Path(__file__).parents[2])
    resource.setrlimit(resource.RLIMIT_NOFILE, (FEW, hard))
    try:
        daemon.start()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    try:
        daemon.until_active()
        assert daemon.process is not None
        assert resource.prlimit(daemon.process.pid, resource.RLIMIT_NOFILE) == (hard, hard)
        program = "import resource; print(resource.getrlimit(resource.RLIMIT_NOFILE))"
        command = [sys.executable, "-S", "-c", program]
        job = daemon.submit(command=command, workdir=str(tmp_path))
        daemon.until_state(job, "succeeded")
        assert daemon.log(job).strip() == str((FEW, hard))
    finally:
        daemon.kill()
        sweep(tmp_path)


def test_healthz_tells_the_truth(tmp_path: Path) -> None:
    with live(tmp_path, "--slots", "2", "--limit", "disk_free=1000T") as daemon:
        found = daemon.call("GET", "/healthz")
        assert (found["role"], found["state"], found["trouble"]) == ("active", "degraded", None)
        assert any("(the limit disk_free)" in note for note in found["notes"])
        assert 0 < found["open_files"] < found["most_open_files"]
        assert found["step_age_s"] >= 0


def submits(daemon: LiveDaemon) -> None:
    with contextlib.suppress(HTTPError):
        daemon.submit(command="true", held=True)


def test_a_manager_whose_store_hangs_says_that_it_does_not_work(tmp_path: Path) -> None:
    with live(tmp_path, "--slots", "2", "--limit", "step_deadline=500ms") as daemon:
        assert daemon.call("GET", "/healthz")["state"] in ("ok", "degraded")
        with sqlite3.connect(tmp_path / "trainmaster.db", isolation_level=None) as other:
            other.execute("BEGIN IMMEDIATE")
            asking = threading.Thread(target=submits, args=(daemon,), daemon=True)
            asking.start()

            def says_so() -> bool:
                try:
                    daemon.call("GET", "/healthz")
                except HTTPError as no:
                    return no.code == 503
                return False

            until(says_so, "it to say so")
            other.execute("ROLLBACK")
        asking.join(PATIENCE_S)
        until(lambda: not says_so(), "it to be well again")
