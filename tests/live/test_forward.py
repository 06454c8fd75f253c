"""Ports of real jobs reached from here: pages, plain TCP both ways, and what is refused."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.live.daemons import LiveDaemon, live, until

pytestmark = pytest.mark.live

SERVER = """
import socket, sys, threading
kind = sys.argv[1]
listener = socket.create_server(("127.0.0.1", 0))
print("port", listener.getsockname()[1], flush=True)
def echo(line):
    count = 0
    while piece := line.recv(65536):
        count += len(piece)
        line.sendall(piece.upper())
    line.sendall(b"\\n%d bytes" % count)   # after the end of its input: its output is still open
    line.close()
while True:
    threading.Thread(target=echo, args=(listener.accept()[0],), daemon=True).start()
"""
PAGES = """
import http.server, os, socketserver
with socketserver.ThreadingTCPServer(("", 0), http.server.SimpleHTTPRequestHandler) as server:
    print("port", server.server_address[1], flush=True)
    server.serve_forever()
"""


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveDaemon]:
    with live(tmp_path_factory.mktemp("forward") / "state", "--slots", "3") as found:
        yield found


def start(daemon: LiveDaemon, folder: Path, program: str, *words: str) -> tuple[str, int]:
    """A job that listens, and its port."""
    file = folder / "server.py"
    file.write_text(program)
    id = daemon.submit(command=[sys.executable, str(file), *words], workdir=str(folder))
    said = until(lambda: re.search(r"port (\d+)", daemon.log(id)), "the job to listen")
    return id, int(said[1])


def tm(daemon: LiveDaemon, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "trainmaster", *words],
        env=os.environ | {"TRAINMASTER_DATA": str(daemon.folder)},
        text=True,
        capture_output=True,
        timeout=120,
    )


@contextmanager
def forwarded(
    daemon: LiveDaemon, job: str, port: int
) -> Iterator[tuple[int, subprocess.Popen[str]]]:
    """The port of this machine that leads there, and the command that carries."""
    command = subprocess.Popen(
        [sys.executable, "-m", "trainmaster", "forward", job, str(port)],
        env=os.environ | {"TRAINMASTER_DATA": str(daemon.folder)},
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    try:
        assert command.stdout is not None
        line = command.stdout.readline()
        found = re.fullmatch(
            rf"http://127\.0\.0\.1:(\d+) leads to port {port} of job (\S+),.*\n", line
        )
        assert found is not None, (line, command.poll())
        yield int(found[1]), command
    finally:
        command.kill()
        command.communicate()


def test_a_page_of_a_job_until_the_job_ends(daemon: LiveDaemon, tmp_path: Path) -> None:
    (tmp_path / "index.html").write_text("loss 0.1")
    content = os.urandom(3_000_000)
    (tmp_path / "weights.bin").write_bytes(content)
    id, port = start(daemon, tmp_path, PAGES)
    with forwarded(daemon, id, port) as (here, command):
        for _ in range(3):
            with urllib.request.urlopen(f"http://127.0.0.1:{here}/", timeout=60) as page:
                assert page.read() == b"loss 0.1"
        with urllib.request.urlopen(f"http://127.0.0.1:{here}/weights.bin", timeout=60) as page:
            assert page.read() == content
        daemon.call("POST", f"/api/v1/jobs/{id}/cancel")
        assert command.wait(60) == 0
        assert command.stderr is not None
        assert f"Job {id} has ended." in command.stderr.read()


def test_plain_tcp_both_ways_at_once(daemon: LiveDaemon, tmp_path: Path) -> None:
    """More than all buffers hold, sent and read at the same time; then the end of one side only."""
    id, port = start(daemon, tmp_path, SERVER, "echo")
    sent = b"abcdefgh" * 500_000
    with forwarded(daemon, id, port) as (here, command):
        with socket.create_connection(("127.0.0.1", here), 60) as line:
            writer = threading.Thread(
                target=lambda: (line.sendall(sent), line.shutdown(socket.SHUT_WR))
            )
            writer.start()
            got = bytearray()
            while piece := line.recv(65536):
                got += piece
            writer.join()
        assert got == sent.upper() + b"\n%d bytes" % len(sent)
        lines = [socket.create_connection(("127.0.0.1", here), 60) for _ in range(5)]
        for number, each in enumerate(lines):
            each.sendall(b"line %d" % number)
        assert [each.recv(100) for each in lines] == [b"LINE %d" % each for each in range(5)]
        for each in lines:
            each.close()
        command.send_signal(signal.SIGINT)
        assert command.wait(60) == 0
    daemon.call("POST", f"/api/v1/jobs/{id}/cancel")


def test_only_ports_of_the_job_itself_are_reached(daemon: LiveDaemon, tmp_path: Path) -> None:
    """Not this process's, not the manager's, not another job's; and nothing of a job that does not run."""
    id, port = start(daemon, tmp_path, SERVER, "echo")
    other = tmp_path / "other"
    other.mkdir()
    neighbour, theirs = start(daemon, other, SERVER, "echo")
    with socket.create_server(("127.0.0.1", 0)) as ours:
        managers = int(str(daemon.url).rpartition(":")[2])
        for each in (ours.getsockname()[1], managers, theirs, 1):
            said = tm(daemon, "forward", id, str(each))
            assert said.returncode == 1
            assert f"no process of job {id} listens on port {each}" in said.stderr
    assert tm(daemon, "forward", "no-such-job", str(port)).returncode == 1
    for each in (id, neighbour):
        daemon.call("POST", f"/api/v1/jobs/{each}/cancel")
        daemon.until_state(each, "cancelled")
    said = tm(daemon, "forward", id, str(port))
    assert f"Job {id} is cancelled, so nothing of it listens" in said.stderr


def test_a_connection_ends_when_its_token_is_revoked_though_data_flow(
    daemon: LiveDaemon, tmp_path: Path
) -> None:
    id, port = start(daemon, tmp_path, SERVER, "echo")
    made = daemon.call("POST", "/api/v1/tokens", {"user": "eve", "role": "operator"})
    place = urlsplit(daemon.url or "")
    head = (
        f"POST /api/v1/jobs/{id}/ports/{port} HTTP/1.1\r\nHost: localhost\r\n"
        f"Authorization: Bearer {made['token']}\r\nTransfer-Encoding: chunked\r\n\r\n"
    )
    with socket.create_connection((place.hostname, place.port), 60) as line:
        line.sendall(head.encode() + b"1\r\nx\r\n")
        got = b""
        while b"X" not in got.partition(b"\r\n\r\n")[2]:
            got += line.recv(4096)
        daemon.call("DELETE", f"/api/v1/tokens/{made['id']}")
        latest = time.monotonic() + 120
        with suppress(ConnectionError):
            while line.sendall(b"1\r\nx\r\n") is None and line.recv(4096):
                assert time.monotonic() < latest, "it goes on"
    daemon.call("POST", f"/api/v1/jobs/{id}/cancel")
