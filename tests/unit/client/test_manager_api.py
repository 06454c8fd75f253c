"""Server-sent events by hand, and where the daemon's address is found."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import threading
import time
from http.server import BaseHTTPRequestHandler, HTTPServer
from ipaddress import ip_address
from pathlib import Path

import pytest

from trainmaster.api import local_socket
from trainmaster.client import address, listening_sockets
from trainmaster.client.address import find_address, user_data_folder
from trainmaster.client.manager_api import (
    LONGEST_PAUSE_S,
    ManagerApi,
    RequestRefused,
    ServerEvent,
    job_path,
    read_events,
)
from trainmaster.errors import BadInput, Failed


def events(text: str) -> list[ServerEvent]:
    return list(read_events(iter(text.encode().splitlines(keepends=True))))


def test_events_are_read_by_the_rules_of_their_format() -> None:
    text = (
        ": ping\n\nid: 7\nevent: log\ndata: one\ndata:two\n\n"
        "data: more\r\n\r\n"
        "retry: 10\n\n"
        "id: 9\ndata\n\n"
        "data: cut off"
    )
    assert events(text) == [
        ServerEvent("7", "log", "one\ntwo"),
        ServerEvent("7", "message", "more"),
        ServerEvent("9", "message", ""),
    ]


def test_a_name_is_safe_in_a_path() -> None:
    assert job_path("a b/../c?", "logs") == "/jobs/a%20b%2F..%2Fc%3F/logs"
    with pytest.raises(BadInput, match="missing"):
        job_path("")


@pytest.fixture
def nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder without a daemon, and an environment that knows none."""
    monkeypatch.chdir(tmp_path)
    for name in ("TRAINMASTER_URL", "TRAINMASTER_DATA"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "share"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setattr(address, "PORT", free_port())
    monkeypatch.setattr(address, "SYSTEM_SOCKET", tmp_path / "run" / "manager.sock")
    return tmp_path


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def write_address(folder: Path, url: str, pid: int = 1) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "address").write_text(json.dumps({"url": url, "pid": pid}))


def url_of(url: str | None = None, data: Path | None = None) -> str | None:
    try:
        return find_address(url, data).url
    except Failed:
        return None


def test_what_is_nearer_to_the_user_is_asked_first(
    nowhere: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert url_of() is None
    write_address(user_data_folder(), "http://own")
    assert url_of() == "http://own"
    write_address(nowhere / ".trainmaster", "http://here/")
    assert url_of() == "http://here"
    write_address(nowhere / "d", "http://stated")
    monkeypatch.setenv("TRAINMASTER_DATA", str(nowhere / "d"))
    assert url_of() == "http://stated"
    monkeypatch.setenv("TRAINMASTER_URL", "http://environment/")
    assert url_of() == "http://environment"
    assert url_of(data=nowhere / "d") == "http://stated"
    assert url_of(url="typed:1234", data=nowhere / "d") == "http://typed:1234"


def test_a_stated_folder_without_an_address_is_not_replaced_by_another(nowhere: Path) -> None:
    write_address(user_data_folder(), "http://own")
    assert url_of(data=nowhere / "empty") is None


def test_the_address_of_a_manager_that_is_gone_is_not_used(nowhere: Path) -> None:
    gone = subprocess.Popen(["true"])
    gone.wait()
    write_address(user_data_folder(), "http://own")
    write_address(nowhere / ".trainmaster", "http://here", gone.pid)
    assert url_of() == "http://own"
    with pytest.raises(Failed, match="start one with `trainmaster up --data"):
        find_address(None, Path(".trainmaster"))


@pytest.mark.parametrize(
    ("answer", "owner", "is_used"),
    [
        ({"role": "active", "version": "1"}, os.geteuid(), True),
        ({"role": "active", "version": "1"}, os.geteuid() + 1, False),
        ({"hello": "world"}, os.geteuid(), False),
    ],
    ids=["ours", "another user's", "another program"],
)
def test_the_usual_address_is_used_if_a_trainmaster_of_the_same_user_answers(
    nowhere: Path,
    monkeypatch: pytest.MonkeyPatch,
    answer: dict[str, str],
    owner: int,
    is_used: bool,
) -> None:
    class Healthy(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(json.dumps(answer).encode())

        def log_message(self, *_: object) -> None:
            """Tests are quiet."""

    with HTTPServer(("127.0.0.1", 0), Healthy) as server:
        port = server.server_address[1]
        monkeypatch.setattr(address, "PORT", port)
        (listener,) = listening_sockets.listeners_at(ip_address("127.0.0.1"), port)
        assert listener.uid == os.geteuid()
        said = frozenset({listener._replace(uid=owner)})
        monkeypatch.setattr(address, "listeners_at", lambda *_: said)
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            assert url_of() == (f"http://127.0.0.1:{port}" if is_used else None)
            if is_used:
                for name, path in (
                    ("OWN_SOCKETS", nowhere),
                    ("SYSTEM_SOCKET", nowhere / "run" / "m.sock"),
                ):
                    assert socket_of(name, path, monkeypatch) == path_of(path)
            assert url_of(data=nowhere / "empty") is None
        finally:
            server.shutdown()
            thread.join()


def socket_of(name: str, place: Path, monkeypatch: pytest.MonkeyPatch) -> Path | None:
    """The socket that the manager at the usual port is asked by, which this process listens on too."""
    with monkeypatch.context() as patched, socket.socket(socket.AF_UNIX) as listening:
        patched.setattr(address, name, str(place) if place.is_dir() else place)
        assert find_address(None, None).socket is None
        path_of(place).parent.mkdir(exist_ok=True)
        listening.bind(str(path_of(place)))
        listening.listen()
        return find_address(None, None).socket


def path_of(place: Path) -> Path:
    return place / "manager-1.sock" if place.is_dir() else place


@pytest.mark.parametrize("strange", ["", "address"], ids=["folder", "file"])
def test_somebody_elses_address_is_not_used_unless_it_is_stated(
    nowhere: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    strange: str,
) -> None:
    write_address(user_data_folder(), "http://own")
    write_address(nowhere / ".trainmaster", "http://theirs")
    give_away(nowhere / ".trainmaster" / strange, monkeypatch)
    assert url_of() == "http://own"
    said = capsys.readouterr().err
    assert "belongs to another user" in said
    assert said.count("\n") == 1
    assert url_of(data=Path(".trainmaster")) == "http://theirs"


def give_away(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make it another user's, or, where only root may, this user another."""
    if os.geteuid() == 0:
        os.chown(path, 12345, -1)
    else:
        monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)


@pytest.mark.parametrize("text", ["", "[]", "{}", "nonsense", '"http://x"'])
def test_a_broken_address_is_named(nowhere: Path, text: str) -> None:
    (nowhere / ".trainmaster").mkdir()
    (nowhere / ".trainmaster" / "address").write_text(text)
    with pytest.raises(BadInput, match=r"\.trainmaster/address"):
        url_of()


def test_an_answer_counts_even_where_the_request_was_not_read_to_its_end(tmp_path: Path) -> None:
    """As when a manager refuses a body by its headers and closes."""
    said = b'{"error": {"code": "conflict", "sentence": "Not so long."}}'
    head = b"HTTP/1.1 409 Conflict\r\nTrainmaster-Store: 1\r\nContent-Length: %d\r\n\r\n" % len(
        said
    )

    def refuse() -> None:
        line, _ = server.accept()
        line.recv(100)
        line.sendall(head + said)
        line.close()

    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "m.sock"))
        server.listen()
        thread = threading.Thread(target=refuse)
        thread.start()
        with pytest.raises(RequestRefused, match="Not so long"):
            ManagerApi(f"unix:{tmp_path}/m.sock").post("/jobs", {"command": "x" * 10_000_000})
        thread.join()


def test_being_over_the_own_limit_is_waited_out_as_the_answer_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = b'{"error": {"code": "over_user_limit", "sentence": "ada asks too often."}}'
    refusal = b"HTTP/1.1 429 Too Many Requests\r\nRetry-After: %d\r\nContent-Length: %d\r\n\r\n"
    good = b"HTTP/1.1 200 OK\r\nTrainmaster-Store: 1\r\nContent-Length: 2\r\n\r\n{}"
    answers = [refusal % (2, len(said)) + said, refusal % (99, len(said)) + said, good]
    refused = refusal % (3, len(said)) + said
    pauses: list[float] = []

    def answer() -> None:
        for each in (*answers, refused):
            line, _ = server.accept()
            line.recv(10_000)
            line.sendall(each)
            line.close()

    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "m.sock"))
        server.listen()
        thread = threading.Thread(target=answer)
        thread.start()
        client = ManagerApi(f"unix:{tmp_path}/m.sock")
        with monkeypatch.context() as patched:
            patched.setattr(time, "sleep", pauses.append)
            assert client.post("/jobs", {"command": "true"}) == {}
        assert pauses == [2, LONGEST_PAUSE_S]
        client.until = time.monotonic() + 1
        with pytest.raises(RequestRefused, match="ada asks too often"):
            client.get("/jobs")
        thread.join()


def test_sockets_are_where_managers_have_them() -> None:
    assert local_socket.SYSTEM == address.SYSTEM_SOCKET
    assert local_socket.own_path(Path("d")).parent == Path(
        address.OWN_SOCKETS.format(uid=os.getuid())
    )


def test_only_http_is_an_address(nowhere: Path) -> None:
    with pytest.raises(BadInput, match="ftp://x"):
        url_of(url="ftp://x")
