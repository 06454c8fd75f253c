"""Interactive sessions with real terminals: a shell behind a socket, people who come and go, idleness."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import ClassVar

import pytest

from tests.cli.answers import job_details, job_row
from tests.cli.counterpart import Counterpart, refusal, serving
from trainmaster.cli.main import main
from trainmaster_sdk import terminal_protocol as frames
from trainmaster_sdk.idle_detection import ask_to_be_suspended
from trainmaster_sdk.terminal_protocol import Kind

pytestmark = pytest.mark.live

PATIENCE_S = 60.0


def wait_until(is_so: Callable[[], bool], what: str) -> None:
    until = time.monotonic() + PATIENCE_S
    while not is_so():
        assert time.monotonic() < until, f"waited in vain for {what}"
        time.sleep(0.02)


class Session:
    """The session's process, as the engine would start it."""

    def __init__(self, folder: Path, arguments: list[str], env: dict[str, str]) -> None:
        self.folder = folder
        self.process = subprocess.Popen(
            [sys.executable, "-m", "trainmaster_sdk.terminal", *arguments],
            env={**os.environ, "TRAINMASTER_CHECKPOINT_DIR": str(folder), "PS1": "", **env},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )

    def attach(self) -> Visitor:
        found: list[Visitor] = []

        def answers() -> bool:
            with contextlib.suppress(OSError):
                found.append(Visitor(self.folder))
            return bool(found)

        wait_until(answers, "the session's socket")
        return found[0]


class Visitor:
    """Somebody at a terminal, without the terminal."""

    def __init__(self, folder: Path) -> None:
        self._line = frames.call(folder)
        self._line.settimeout(PATIENCE_S)
        self._frames = frames.Frames()
        self.screen = b""
        self.heard: list[tuple[Kind, bytes]] = []

    def type(self, text: str) -> None:
        self._line.sendall(frames.frame(Kind.TYPED, text.encode()))

    def resize(self, rows: int, columns: int) -> None:
        self._line.sendall(frames.frame(Kind.SIZE, frames.SIZE.pack(rows, columns)))

    def sees(self, text: bytes) -> None:
        while text not in self.screen:
            self._hear()

    def hears(self, kind: Kind) -> bytes:
        while kind not in dict(self.heard):
            self._hear()
        return dict(self.heard)[kind]

    def leave(self) -> None:
        self._line.close()

    def _hear(self) -> None:
        piece = self._line.recv(1 << 16)
        assert piece, f"the session hung up after {self.screen!r}"
        for said in self._frames.feed(piece):
            self.heard.append((said.kind, said.body))
            if said.kind is Kind.SHOWN:
                self.screen += said.body


@pytest.fixture
def open_session(tmp_path: Path) -> Iterator[Callable[..., Session]]:
    """Sessions in a folder whose path is longer than a socket's may be; ended afterwards."""
    opened: list[Session] = []

    def start(*arguments: str, **env: str) -> Session:
        folder = tmp_path / ("deep" * 20) / ("deeper" * 10)
        folder.mkdir(parents=True, exist_ok=True)
        opened.append(Session(folder, list(arguments), env))
        return opened[-1]

    yield start
    for session in opened:
        if session.process.poll() is None:
            session.process.send_signal(signal.SIGCONT)
            session.process.terminate()
        session.process.communicate(timeout=PATIENCE_S)


def test_a_shell_remembers_between_visits_and_hands_over_its_code(open_session) -> None:
    session = open_session("--", "/bin/sh")
    first = session.attach()
    first.type("WORD=kept; echo first $((40 + 2))\n")
    first.sees(b"first 42")
    first.leave()
    second = session.attach()
    second.sees(b"first 42")
    second.type("echo again-$WORD; exit 7\n")
    second.sees(b"again-kept")
    assert frames.CODE.unpack(second.hears(Kind.ENDED)) == (7,)
    output, _ = session.process.communicate(timeout=PATIENCE_S)
    assert session.process.returncode == 7
    assert b"first 42" in output, "what a session shows is in its job's log"
    assert not (session.folder / frames.SOCKET).exists()


def test_two_people_see_the_same_and_the_window_has_its_size(open_session) -> None:
    session = open_session("--", "/bin/sh")
    one, two = session.attach(), session.attach()
    one.resize(33, 77)
    one.type("stty size\n")
    one.sees(b"33 77")
    two.sees(b"33 77")


def test_only_the_owner_may_attach(open_session) -> None:
    session = open_session("--", "/bin/sh")
    session.attach().leave()
    assert (session.folder / frames.SOCKET).stat().st_mode & 0o777 == 0o600


def test_told_to_stop_it_ends_the_shell_that_would_not(open_session) -> None:
    session = open_session("--", "/bin/sh", "-c", "trap '' HUP TERM; echo ready $$; sleep 1000")
    visitor = session.attach()
    visitor.sees(b"ready ")
    visitor.sees(b"\n")
    child = int(visitor.screen.split()[1])
    session.process.terminate()
    session.process.communicate(timeout=PATIENCE_S)
    assert session.process.returncode == 128 + signal.SIGTERM
    assert not Path(f"/proc/{child}").exists()


def test_a_command_that_is_not_there_is_said(open_session) -> None:
    session = open_session("--", "no-such-program")
    output, _ = session.process.communicate(timeout=PATIENCE_S)
    assert session.process.returncode == 127
    assert b"no-such-program cannot be run" in output


@pytest.fixture
def daemon() -> Iterator[Counterpart]:
    with serving() as counterpart:
        yield counterpart


def suspensions(daemon: Counterpart) -> int:
    return len(daemon.bodies("POST", "/jobs/5/idle"))


def test_an_unused_session_asks_to_be_suspended_and_again_after_it_was_woken(
    open_session, daemon: Counterpart
) -> None:
    daemon.on("POST", "/jobs/5/idle", job_row("5"))
    url = {"TRAINMASTER_URL": daemon.url, "TRAINMASTER_JOB": "5"}
    session = open_session("--idle", "0.5", "--", "/bin/sh", **url)
    visitor = session.attach()
    visitor.hears(Kind.SLEEPS)
    wait_until(lambda: suspensions(daemon) == 1, "a suspension")
    session.process.send_signal(signal.SIGSTOP)
    session.process.send_signal(signal.SIGCONT)
    wait_until(lambda: suspensions(daemon) >= 2, "another suspension")


def test_a_session_asks_by_the_managers_socket_where_it_has_one(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setenv("TRAINMASTER_JOB", "5")
    with serving(tmp_path / "m.sock") as manager:
        monkeypatch.setenv("TRAINMASTER_URL", manager.url)
        manager.on("POST", "/jobs/5/idle", job_row("5"), refusal(409, "conflict", "It has ended."))
        assert ask_to_be_suspended()
        assert not ask_to_be_suspended()
    assert not ask_to_be_suspended()
    said = capsys.readouterr().err.splitlines()
    assert said[0] == "Idle, but the manager did not suspend this job: it answered 409 Conflict."
    assert len(said) == 2


def test_a_session_that_works_is_not_idle(open_session, daemon: Counterpart) -> None:
    daemon.on("POST", "/jobs/5/idle", job_row("5"))
    url = {"TRAINMASTER_URL": daemon.url, "TRAINMASTER_JOB": "5"}
    session = open_session("--idle", "1.5", "--", "/bin/sh", **url)
    visitor = session.attach()
    busy = f"{sys.executable} -c 'import time; t = time.time() + 5\nwhile time.time() < t: pass'"
    visitor.type(f"{busy}; echo worked-$((1 + 1))\n")
    visitor.sees(b"worked-2")
    assert suspensions(daemon) == 0
    visitor.hears(Kind.SLEEPS)
    wait_until(lambda: suspensions(daemon) == 1, "a suspension")


def test_where_nobody_can_be_asked_it_goes_on(open_session) -> None:
    session = open_session("--idle", "0.3", "--", "/bin/sh", TRAINMASTER_URL="")
    visitor = session.attach()
    visitor.hears(Kind.SLEEPS)
    visitor.type("echo still-$((1 + 1)); exit\n")
    visitor.sees(b"still-2")
    output, _ = session.process.communicate(timeout=PATIENCE_S)
    assert b"TRAINMASTER_URL is not set" in output


# -- the command, at a real terminal ---------------------------------------------------------------------


class Person:
    """`trainmaster shell` on a pseudo-terminal, typed at."""

    there: ClassVar[set[int]] = set()

    def __init__(self, url: str, *arguments: str, ignores_hangups: bool = False) -> None:
        self.pid, self.keys = pty.fork()
        if self.pid == 0:
            if ignores_hangups:
                signal.signal(signal.SIGHUP, signal.SIG_IGN)
            words = [sys.executable, "-m", "trainmaster", "shell", *arguments, "--url", url]
            os.execv(sys.executable, words)
        self.there.add(self.pid)
        self.screen = b""

    def resize(self, rows: int, columns: int) -> None:
        fcntl.ioctl(self.keys, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def type(self, text: str) -> None:
        os.write(self.keys, text.encode())

    def sees(self, text: bytes) -> None:
        until = time.monotonic() + PATIENCE_S
        while text not in self.screen:
            assert time.monotonic() < until, f"no {text!r} in {self.screen!r}"
            if select.select([self.keys], [], [], 1.0)[0]:
                self.screen += os.read(self.keys, 1 << 16)

    def code(self) -> int:
        with contextlib.suppress(OSError):
            while piece := os.read(self.keys, 1 << 16):
                self.screen += piece
        _, status = os.waitpid(self.pid, 0)
        self.there.discard(self.pid)
        os.close(self.keys)
        return os.waitstatus_to_exitcode(status)


@pytest.fixture(autouse=True)
def nobody_is_left() -> Iterator[None]:
    """Whoever is still at a terminal when a test fails is sent away."""
    yield
    while Person.there:
        pid = Person.there.pop()
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)


ROW = job_details("5", name="shell", start_s=1.0)


def surroundings_of(session: Session) -> dict[str, object]:
    env = {"TRAINMASTER_CHECKPOINT_DIR": str(session.folder)}
    return {"workdir": "/", "environment": env}


def test_coming_and_going_at_a_real_terminal(open_session, daemon: Counterpart) -> None:
    session = open_session("--", "/bin/sh")
    daemon.on("GET", "/jobs/5/environment", surroundings_of(session))
    daemon.on("GET", "/jobs/5", ROW)
    person = Person(daemon.url, "5")
    person.type("echo here-$((1 + 1))\r")
    person.sees(b"here-2")
    person.resize(21, 66)
    person.type("stty size\r")
    person.sees(b"21 66")
    person.type("~.")
    assert person.code() == 0
    assert b"Session 5 goes on" in person.screen
    assert session.process.poll() is None

    again = Person(daemon.url, "5")
    again.sees(b"here-2")
    again.type("exit 3\r")
    assert again.code() == 3


@pytest.mark.parametrize("ignores_hangups", [False, True])
def test_a_closed_terminal_leaves_the_session_running(
    open_session, daemon: Counterpart, ignores_hangups: bool
) -> None:
    session = open_session("--", "/bin/sh")
    daemon.on("GET", "/jobs/5/environment", surroundings_of(session))
    daemon.on("GET", "/jobs/5", ROW)
    person = Person(daemon.url, "5", ignores_hangups=ignores_hangups)
    person.type("echo here-$((1 + 1))\r")
    person.sees(b"here-2")
    os.close(person.keys)
    os.waitpid(person.pid, 0)
    Person.there.discard(person.pid)
    visitor = session.attach()
    visitor.type("echo alive-$((1 + 1))\n")
    visitor.sees(b"alive-2")


def test_a_sleeping_session_is_resumed_first(open_session, daemon: Counterpart) -> None:
    session = open_session("--", "/bin/sh")
    waiting = {"code": "NotEnoughFree", "sentence": "It needs 1 GPU and none are free."}
    daemon.on("GET", "/jobs/5/environment", surroundings_of(session))
    daemon.on(
        *("GET", "/jobs/5"),
        *(
            {**ROW, "state": "suspended", "suspended_by": "idle"},
            {**ROW, "state": "pending", "reason": waiting},
            ROW,
        ),
    )
    daemon.on("POST", "/jobs/5/resume", job_row("5"))
    person = Person(daemon.url, "5")
    person.type("exit\r")
    assert person.code() == 0
    assert len(daemon.bodies("POST", "/jobs/5/resume")) == 1
    assert b"Waiting: It needs 1 GPU and none are free." in person.screen


def test_a_user_who_stops_waiting_for_room_is_told_that_the_session_stays(
    daemon: Counterpart,
) -> None:
    waiting = {"code": "NotEnoughFree", "sentence": "It needs 1 GPU and none are free."}
    daemon.on("GET", "/jobs/5", {**ROW, "state": "pending", "reason": waiting})
    person = Person(daemon.url, "5")
    person.sees(b"Waiting: It needs 1 GPU")
    person.type("\x03")
    assert person.code() == 130
    assert b"Session 5 stays: `trainmaster cancel 5` ends it." in person.screen


def test_a_new_session_is_submitted_as_one_process_that_knows_the_daemon(
    open_session, daemon: Counterpart
) -> None:
    session = open_session("--", "/bin/sh")
    daemon.on("POST", "/jobs", {"jobs": [{"id": "5", "name": "play", "ids": ["5"]}]})
    daemon.on("GET", "/jobs/5/environment", surroundings_of(session))
    daemon.on("GET", "/jobs/5", ROW)
    person = Person(daemon.url, "--gpus", "2", "-n", "play", "--idle", "30m")
    person.sees(b"Job 5 (play)")
    person.type("exit\r")
    assert person.code() == 0
    ((spec,),) = [body["jobs"] for body in daemon.bodies("POST", "/jobs")]
    assert spec["command"][1:] == ["-m", "trainmaster_sdk.terminal", "--idle", "1800", "--"]
    assert (spec["gpus"], spec["name"], spec["ranks"], spec["retries"]) == ("2", "play", "node", 0)
    assert spec["snapshot"] is False
    assert spec["env"]["TRAINMASTER_URL"] == daemon.url


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ({**ROW, "state": "failed", "exit_code": 2}, "has failed with exit code 2"),
        ({**ROW, "state": "cancelled"}, "has been cancelled"),
    ],
)
def test_a_session_that_has_ended_is_not_waited_for(daemon: Counterpart, row, said, capsys) -> None:
    daemon.on("GET", "/jobs/5", row)
    assert main(["shell", "5", "--url", daemon.url]) == 1
    assert said in capsys.readouterr().err


def test_a_job_that_is_no_session_is_named(daemon: Counterpart, tmp_path: Path, capsys) -> None:
    env = {"TRAINMASTER_CHECKPOINT_DIR": str(tmp_path)}
    daemon.on("GET", "/jobs/5", ROW, {**ROW, "state": "succeeded", "exit_code": 0})
    daemon.on("GET", "/jobs/5/environment", {"workdir": "/", "environment": env})
    assert main(["shell", "5", "--url", daemon.url]) == 1
    assert "is not a session" in capsys.readouterr().err


@pytest.fixture
def nowhere(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with open(os.devnull) as nothing:
        monkeypatch.setattr(sys, "stdin", nothing)
        yield


@pytest.mark.usefixtures("nowhere")
def test_without_a_terminal_no_session_is_opened_or_entered(
    open_session, daemon: Counterpart, capsys
) -> None:
    assert main(["shell", "--url", daemon.url]) == 2
    assert "A session needs a terminal, and standard input is not one" in capsys.readouterr().err
    assert daemon.asked == []
    session = open_session("--", "/bin/sh")
    daemon.on("GET", "/jobs/5/environment", surroundings_of(session))
    daemon.on("GET", "/jobs/5", ROW)
    assert main(["shell", "5", "--url", daemon.url]) == 2
    assert session.process.poll() is None


@pytest.mark.usefixtures("nowhere")
def test_a_session_may_be_started_for_later(daemon: Counterpart, capsys) -> None:
    daemon.on("POST", "/jobs", {"jobs": [{"id": "5", "name": "shell", "ids": ["5"]}]})
    assert main(["shell", "-d", "--url", daemon.url]) == 0
    assert capsys.readouterr().out == "5\n"


# -- notebooks -------------------------------------------------------------------------------------------

JUPYTER = f"""#!{sys.executable}
import http.server, json, os, sys
port = int(next(each for each in sys.argv if each.startswith("--port=")).split("=")[1])
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        allowed = self.headers["Authorization"] == "token " + os.environ["JUPYTER_TOKEN"]
        body = json.dumps({{"last_activity": "2020-01-01T00:00:00.000000Z"}}).encode()
        self.send_response(200 if allowed else 403)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def log_message(self, *_): pass
http.server.HTTPServer(("127.0.0.1", port), Handler).serve_forever()
"""


@pytest.fixture
def jupyter(tmp_path: Path) -> str:
    """A PATH with a program that answers as Jupyter's server does."""
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "jupyter-lab").write_text(JUPYTER)
    (folder / "jupyter-lab").chmod(0o755)
    return f"{folder}:{os.environ['PATH']}"


def test_a_notebook_leaves_its_address_and_sleeps(
    open_session, daemon: Counterpart, jupyter: str, capsys
) -> None:
    daemon.on("POST", "/jobs/5/idle", job_row("5"))
    url = {"TRAINMASTER_URL": daemon.url, "TRAINMASTER_JOB": "5", "PATH": jupyter}
    session = open_session("--notebook", "--idle", "1", **url)
    daemon.on("GET", "/jobs/5/environment", surroundings_of(session))
    daemon.on("GET", "/jobs/5", ROW)
    wait_until((session.folder / frames.ADDRESS).exists, "the notebook's address")
    assert main(["shell", "5", "--url", daemon.url]) == 0
    said = json.loads((session.folder / frames.ADDRESS).read_text())
    assert capsys.readouterr().out == f"{said['url']}\n"
    assert (session.folder / frames.ADDRESS).stat().st_mode & 0o777 == 0o600
    wait_until(lambda: suspensions(daemon) >= 1, "a suspension")


def test_without_jupyter_no_notebook_is_submitted(daemon: Counterpart, monkeypatch, capsys) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    assert main(["shell", "--notebook", "--url", daemon.url]) == 2
    assert "pip install jupyterlab" in capsys.readouterr().err
    assert daemon.asked == []
