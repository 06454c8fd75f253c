"""The link: says what matters, never waits, never fails."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.sdk.fake_supervisor import FakeSupervisor, booth, socket_path, wait_until
from trainmaster_sdk import control_client as link_module
from trainmaster_sdk.control_client import ControlClient

HELLO = {"say": "hello", "rank": 0, "pid": 1}


@pytest.fixture(name="there")
def fixture_there() -> Iterator[FakeSupervisor]:
    with booth() as opened:
        yield opened


def test_it_says_hello_first_and_keeps_the_order(there: FakeSupervisor) -> None:
    link = ControlClient(str(there.path), HELLO)
    for step in range(50):
        link.say({"say": "saved", "step": step})
    link.close(5)
    there.wait_for("saved", 50)
    assert there.heard == [HELLO, *({"say": "saved", "step": step} for step in range(50))]


def test_it_hears_what_is_asked_and_skips_noise(there: FakeSupervisor) -> None:
    link = ControlClient(str(there.path), HELLO)
    link.hear()
    there.wait_for("hello")
    for connection in there._connections:
        connection.sendall(b'no json\n[1]\n{"ask":"sa')
        connection.sendall(b've"}\n')
    heard: list[object] = []
    wait_until(lambda: bool(heard.extend(link.hear()) or heard), "something was heard")
    assert heard == [{"ask": "save"}]
    link.close(0)


@pytest.mark.parametrize("path", [None, "/nowhere/at/all", "/" + "long/" * 60 + "s"])
def test_nobody_there_is_no_error(path: str | None) -> None:
    link = ControlClient(path, HELLO)
    link.say({"say": "done"})
    assert link.hear() == []
    link.close(5)


def test_a_listener_that_never_reads_costs_nothing_but_old_progress() -> None:
    with socket_path() as path, socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as deaf:
        deaf.bind(str(path))
        deaf.listen(1)
        link = ControlClient(str(path), HELLO)
        for step in range(20_000):
            link.say_newest({"say": "progress", "step": step, "pad": "x" * 100}, now=True)
        link.say({"say": "saved", "step": 7})
        # It listens again, late: what matters has been kept, and of progress the newest.
        connection, _ = deaf.accept()
        connection.setblocking(False)
        text = b""
        while b"19999" not in text or b"saved" not in text:
            link.hear()
            try:
                text += connection.recv(1 << 20)
            except BlockingIOError:
                continue
        assert text.count(b"\n") < 20_000
        connection.close()
        link.close(0)


def test_it_comes_back_after_the_supervisor_did(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(link_module, "RETRY_S", 0.0)
    with socket_path() as path:
        first = FakeSupervisor(path)
        link = ControlClient(str(path), HELLO)
        link.say({"say": "saved", "step": 1})
        first.wait_for("saved")
        first.close()
        link.hear()  # notices
        link.say({"say": "saved", "step": 2})
        second = FakeSupervisor(path)
        link.say({"say": "saved", "step": 3})
        second.wait_for("saved", 2)
        assert [line.get("step") for line in second.heard] == [None, 2, 3]
        assert second.heard[0] == HELLO
        link.close(5)
        second.close()


def test_a_name_too_long_for_a_socket_is_reached(tmp_path: Path) -> None:
    folder = tmp_path / ("x" * 120)
    folder.mkdir()
    here = os.getcwd()
    os.chdir(folder)
    try:
        opened = FakeSupervisor(Path("s"))
    finally:
        os.chdir(here)
    link = ControlClient(str(folder / "s"), HELLO)
    link.close(5)
    opened.wait_for("hello")
    opened.close()


@pytest.mark.filterwarnings("ignore:.*use of fork:DeprecationWarning")
def test_a_forked_child_has_no_voice(there: FakeSupervisor) -> None:
    link = ControlClient(str(there.path), HELLO)
    child = os.fork()
    if child == 0:
        link.say({"say": "done"})
        link.close(5)
        os._exit(0)
    os.waitpid(child, 0)
    link.say({"say": "saved", "step": 1})
    link.close(5)
    there.wait_for("saved")
    assert [line["say"] for line in there.heard] == ["hello", "saved"]
