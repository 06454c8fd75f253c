"""What admins read of the audit log: the newest lines, over rotated files."""

from __future__ import annotations

import asyncio
import json
import os
import resource
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from starlette.responses import PlainTextResponse
from starlette.types import Message, Receive, Scope, Send

from trainmaster.api import audit_file
from trainmaster.api.audit_file import WAITING_BYTES
from trainmaster.api.audit_log import (
    CHANGES,
    FAILURES,
    PART_BYTES,
    AuditFile,
    AuditLog,
    last_lines,
)
from trainmaster.api.caller import Caller, Role

pytestmark = pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning")


def line(second: int, user: str = "ada", status: int = 200) -> str:
    at = f"2026-11-17T00:00:{second:02}.000+00:00"
    return json.dumps({"at": at, "user": user, "verb": "POST", "path": "/x", "status": status})


def log(folder: Path) -> Path:
    place = folder / "audit.log"
    (folder / "audit.log.2").write_text(f"{line(1)}\n{line(2, 'bob')}\n")
    (folder / "audit.log.1").write_text(f"{line(3)}\n{line(4, 'bob', 403)}\n")
    place.write_text(f"{line(5)}\nnot json\n{line(6)}\n" + '{"at": "2026-11-17T00:0')
    return place


def seconds(found: list[dict[str, object]]) -> list[int]:
    return [int(str(each["at"])[17:19]) for each in found]


def test_the_newest_are_last_and_lines_that_were_cut_off_are_left_out(tmp_path: Path) -> None:
    assert seconds(last_lines(log(tmp_path), 100, None, None)) == [1, 2, 3, 4, 5, 6]
    assert seconds(last_lines(log(tmp_path), 3, None, None)) == [4, 5, 6]
    assert last_lines(log(tmp_path), 1, None, None)[0]["token"] is None


def test_of_one_user_and_since_a_time(tmp_path: Path) -> None:
    place = log(tmp_path)
    assert seconds(last_lines(place, 100, "bob", None)) == [2, 4]
    assert seconds(last_lines(place, 1, "bob", None)) == [4]
    third = 1794873603.0  # 2026-11-17T00:00:03Z
    assert seconds(last_lines(place, 100, None, third)) == [3, 4, 5, 6]


def test_a_line_that_was_written_late_hides_none_before_it(tmp_path: Path) -> None:
    place = tmp_path / "audit.log"
    place.write_text(f"{line(3)}\n{line(4)}\n{line(2)}\n{line(5)}\n")
    third = 1794873603.0  # 2026-11-17T00:00:03Z
    assert seconds(last_lines(place, 100, None, third)) == [3, 4, 5]


def test_nothing_is_written_nowhere(tmp_path: Path) -> None:
    assert last_lines(None, 10, None, None) == []
    assert last_lines(tmp_path / "audit.log", 10, None, None) == []


def test_the_line_is_written_before_the_answer_goes_out(tmp_path: Path) -> None:
    """A manager that is killed right after an answer has noted it."""
    place = tmp_path / "audit.log"
    app = AuditLog(PlainTextResponse("done", status_code=201), AuditFile(place))
    lines: list[int] = []

    async def receive() -> Message:
        return {"type": "http.request"}

    async def send(_message: Message) -> None:
        lines.append(len(place.read_text().splitlines()))

    scope: Scope = {
        "type": "http",
        "method": "POST",
        "path": "/x",
        "headers": [],
        "client": None,
        "server": None,
    }
    asyncio.run(app(scope, receive, send))
    assert lines == [1, 1]
    (said,) = last_lines(place, 10, None, None)
    assert said["status"] == 201


def test_a_line_that_was_cut_off_does_not_take_the_next_one_with_it(tmp_path: Path) -> None:
    place = tmp_path / "audit.log"
    place.write_text(f"{line(1)}\n" + '{"at": "2026-11-17T00:0')
    AuditFile(place).write(json.loads(line(2)))
    assert seconds(last_lines(place, 10, None, None)) == [1, 2]


def test_failures_of_one_do_not_push_out_what_others_did(tmp_path: Path) -> None:
    place = tmp_path / "audit.log"
    file = AuditFile(place)
    failed, other = json.loads(line(1, "ada", 403)), json.loads(line(2, "bob", 403))
    for _ in range(1000):
        file.write_failure("ada", failed, 0)
    file.write_failure("bob", other, 0)
    file.write_failure("ada", failed, 1_000_000)
    found = last_lines(place, 10_000, None, None)
    assert [each["user"] for each in found] == ["ada"] * FAILURES + ["bob", "ada"]
    assert [each["left_out"] for each in found[-2:]] == [0, 1000 - FAILURES]


def test_changes_of_one_do_not_push_out_what_others_did_and_are_counted(tmp_path: Path) -> None:
    place = tmp_path / "audit.log"
    file = AuditFile(place)
    done, other = json.loads(line(1, "ada")), json.loads(line(2, "bob"))
    written = [file.write_change("ada", done | {"path": str(n)}, 0) for n in range(CHANGES + 20)]
    assert written == [0] * CHANGES + [1_000_000] * 20
    assert file.write_change("bob", other, 0) == 0
    file.write_left_out("ada", 0)
    assert len(last_lines(place, 10_000, "ada", None)) == CHANGES, "not before its turn"
    file.write_left_out("ada", 1_000_000)
    file.write_left_out("ada", 2_000_000)
    (last,) = last_lines(place, 10_000, "ada", None)[CHANGES:]
    assert (last["path"], last["left_out"]) == (str(CHANGES + 19), 19)
    assert file.write_change("ada", done, 2_000_000) == 0
    assert last_lines(place, 1, "ada", None)[0]["left_out"] == 0, "each is counted once"


def test_what_was_left_out_is_said_at_the_end(tmp_path: Path) -> None:
    place = tmp_path / "audit.log"
    file = AuditFile(place)
    for _ in range(CHANGES + 20):
        file.write_change("ada", json.loads(line(1, "ada")), 0)
    for _ in range(FAILURES + 3):
        file.write_failure("bob", json.loads(line(2, "bob", 403)), 0)
    file.end()
    file.end()
    said = last_lines(place, 2, None, None)
    assert [(each["user"], each["left_out"]) for each in said] == [("bob", 2), ("ada", 19)]


def test_long_lines_count_as_several(tmp_path: Path) -> None:
    """Else a user could push out others by long paths, in fewer lines."""
    file = AuditFile(tmp_path / "audit.log")
    long = json.loads(line(1, "ada")) | {"path": "\U0001f600" * 200}
    sizes = len(json.dumps(long)) // PART_BYTES
    for _ in range(CHANGES):
        file.write_change("ada", long, 0)
    assert len(last_lines(tmp_path / "audit.log", 10_000, None, None)) < CHANGES / sizes
    assert file.write_change("ada", long, 0) > sizes * 100_000


def test_of_operators_every_change_is_noted_and_of_others_soon_how_many_were_not(
    tmp_path: Path,
) -> None:
    place = tmp_path / "audit.log"
    app = AuditLog(PlainTextResponse("done"), AuditFile(place))

    async def send(_message: Message) -> None:
        pass

    def said(user: str) -> tuple[int, int]:
        found = last_lines(place, 10_000, user, None)
        return len(found), sum(each["left_out"] or 0 for each in found)

    async def play() -> None:
        for user, role in (("eve", Role.USER), ("ops", Role.OPERATOR)):
            state = {"caller": Caller(user, role, None, "token")}
            scope = {"type": "http", "method": "POST", "path": "/x", "headers": [], "client": None}
            for _ in range(CHANGES + 50):
                await app(scope | {"server": None, "state": state}, never, send)
        async with asyncio.timeout(60):
            while sum(said("eve")) < CHANGES + 50:
                await asyncio.sleep(0.05)

    asyncio.run(play())
    assert said("ops") == (CHANGES + 50, 0)
    assert said("eve")[1] > 0


@contextmanager
def full_disk() -> Iterator[None]:
    """Files do not grow beyond what is set aside, which can be written over."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (WAITING_BYTES, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, before)


def in_a_process_that_is_killed(act: Callable[[], None]) -> None:
    """What it has not written down is gone."""
    pid = os.fork()
    if pid == 0:
        act()
        os.kill(os.getpid(), signal.SIGKILL)
    assert os.waitpid(pid, 0)[1] == signal.SIGKILL


@pytest.fixture
def large(tmp_path: Path) -> Path:
    """A log that cannot grow while the disk is full."""
    place = tmp_path / "audit.log"
    place.write_text(f"{line(0)}\n" * (1 + WAITING_BYTES // len(line(0))))
    return place


def test_a_line_that_finds_no_room_outlives_a_killed_manager(large: Path) -> None:
    def write() -> None:
        file = AuditFile(large)
        file.write(json.loads(line(1)))
        with full_disk():
            file.write(json.loads(line(2)))
            file.write(json.loads(line(3)))

    in_a_process_that_is_killed(write)
    assert seconds(last_lines(large, 2, None, None)) == [0, 1]
    again = AuditFile(large)
    assert again.has_room
    again.write(json.loads(line(4)))
    assert seconds(last_lines(large, 4, None, None)) == [1, 2, 3, 4]


def test_lines_that_waited_are_in_their_order_once_there_is_room(large: Path) -> None:
    file = AuditFile(large)
    file.write(json.loads(line(1)))
    with full_disk():
        file.write(json.loads(line(2)))
    file.write(json.loads(line(3)))
    assert seconds(last_lines(large, 3, None, None)) == [1, 2, 3]
    assert not (large.parent / "audit.log.waiting").read_bytes().strip(b"\0")


def test_without_room_for_its_line_a_request_is_refused(large: Path) -> None:
    done: list[str] = []

    async def work(scope: Scope, receive: Receive, send: Send) -> None:
        done.append(scope["path"])
        await PlainTextResponse("done")(scope, receive, send)

    file = AuditFile(large)
    app = AuditLog(work, file)
    said: list[int] = []

    async def send(message: Message) -> None:
        if message["type"] == "http.response.start":
            said.append(message["status"])

    def ask(method: str) -> int:
        scope = {"type": "http", "method": method, "path": "/x", "headers": [], "client": None}
        asyncio.run(app(scope | {"server": None}, never, send))
        return said.pop()

    assert ask("POST") == 200
    with full_disk():
        for _ in range(WAITING_BYTES // len(line(1))):
            file.write(json.loads(line(1)))
        done.clear()
        assert (ask("POST"), ask("GET")) == (503, 200)
        assert done == ["/x"], "reading goes on"
    assert ask("POST") == 200


async def never() -> Message:
    return {"type": "http.request"}


def test_full_files_are_rotated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit_file, "MOST_BYTES", 2 * (len(line(1)) + 1))
    file = AuditFile(tmp_path / "audit.log")
    for second in range(1, 6):
        file.write(json.loads(line(second)))
    assert seconds(last_lines(tmp_path / "audit.log", 10, None, None)) == [1, 2, 3, 4, 5]
    assert len((tmp_path / "audit.log.2").read_text().splitlines()) == 2
