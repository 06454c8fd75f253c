"""A manager that other machines reach: only by TLS, and what a request says of its origin counts nothing."""

from __future__ import annotations

import http.client
import os
import re
import signal
import ssl
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.live.daemons import LiveDaemon, live, until
from tests.live.test_doctor import found_in
from tests.unix_http import Answer, UnixConnection, ask
from trainmaster.cli.main import main
from trainmaster_sdk.process_tree import is_alive

pytestmark = pytest.mark.live
NAMES = "IP:127.0.0.1,DNS:tower,DNS:*.lan"
"""What the certificate is for."""


@pytest.fixture
def certificate(tmp_path: Path) -> tuple[Path, Path]:
    cert, key = tmp_path / "tm.crt", tmp_path / "tm.key"
    words = [
        "req",
        "-x509",
        "-newkey",
        "rsa:2048",
        "-nodes",
        "-days",
        "1",
        "-subj",
        "/CN=localhost",
    ]
    named = ["-addext", f"subjectAltName={NAMES}", "-keyout", str(key), "-out", str(cert)]
    subprocess.run(["openssl", *words, *named], check=True, capture_output=True)
    return cert, key


def fingerprint(cert: Path) -> str:
    """As openssl shows it, written as the manager does."""
    words = ["openssl", "x509", "-in", str(cert), "-noout", "-fingerprint", "-sha256"]
    said = subprocess.run(words, check=True, capture_output=True, text=True).stdout
    return f"sha256:{said.strip().partition('=')[2].replace(':', '').lower()}"


def asked(daemon: LiveDaemon, cert: Path, path: str, **headers: str) -> Answer:
    place = urlsplit(daemon.url or "")
    context = ssl.create_default_context(cafile=str(cert))
    connection = http.client.HTTPSConnection("127.0.0.1", place.port, timeout=60, context=context)
    return ask(connection, "GET", path, headers=headers)


def test_tcp_speaks_tls_and_the_unix_socket_does_not(
    tmp_path: Path, certificate: tuple[Path, Path]
) -> None:
    cert, key = certificate
    daemon = LiveDaemon(
        tmp_path / "state", "--slots", "1", "--tls-cert", str(cert), "--tls-key", str(key)
    )
    try:
        daemon.start()
        until(lambda: daemon.url and (daemon.folder / "admin-token").exists(), "its address")
        assert str(daemon.url).startswith("https://127.0.0.1:")
        assert asked(daemon, cert, "/healthz").json["role"] == "active"
        assert asked(daemon, cert, "/api/v1/nodes").status == 401
        assert asked(daemon, cert, "/api/v1/nodes", **daemon.bearer()).status == 200
        forwarded = {"X-Forwarded-For": "127.0.0.1", "X-Forwarded-User": "root"}
        assert asked(daemon, cert, "/api/v1/nodes", **forwarded).status == 401
        link = re.search(r"https://\S+(/login\?code=\S+)", (daemon.folder / "out.txt").read_text())
        assert link is not None
        assert "Secure" in asked(daemon, cert, link[1]).headers["set-cookie"]
        local = re.search(r'"socket": "([^"]+)"', (daemon.folder / "address").read_text())
        assert local is not None
        assert ask(UnixConnection(local[1]), "GET", "/api/v1/nodes").status == 200
        found = ask(UnixConnection(local[1]), "GET", "/api/v1/status").json
        assert (found["url"], found["fingerprint"]) == (daemon.url, fingerprint(cert))
        place = urlsplit(daemon.url or "")
        port = found_in(daemon.folder)["port"]
        assert "is the manager's" in port.sentence, "doctor knows nothing of the certificate"
        clear = http.client.HTTPConnection("127.0.0.1", place.port, timeout=60)
        with pytest.raises((ConnectionError, http.client.HTTPException)):
            ask(clear, "GET", "/healthz")
    finally:
        daemon.kill()


def test_the_names_of_its_certificate_are_served_and_links_lead_to_them(
    tmp_path: Path, certificate: tuple[Path, Path]
) -> None:
    cert, key = certificate
    secured = ("--tls-cert", str(cert), "--tls-key", str(key))
    daemon = LiveDaemon(tmp_path / "state", "--slots", "1", *secured)
    try:
        daemon.start()
        until(lambda: daemon.url and (daemon.folder / "admin-token").exists(), "its address")
        context = ssl.create_default_context(cafile=str(cert))
        port = urlsplit(daemon.url or "").port
        for host, status in (("tower", 200), ("tower.lan", 200), ("tower.example", 400)):
            line = http.client.HTTPSConnection("127.0.0.1", port, timeout=60, context=context)
            said = {"Host": f"{host}:{port}", **daemon.bearer()}
            made = ask(line, "POST", "/api/v1/login-links", headers=said)
            assert made.status == status, host
            if status == 200:
                assert made.json["url"].startswith(f"https://{host}:{port}/login?code=")
    finally:
        daemon.kill()


def test_what_the_start_of_a_standby_prints_stops_the_standby(
    tmp_path: Path, certificate: tuple[Path, Path]
) -> None:
    """Nothing of the caller's knows its certificate."""
    cert, key = certificate
    words = ["up", "-d", "--data", str(tmp_path / "state"), "--slots", "1", "--port", "0"]
    secured = [*words, "--tls-cert", str(cert), "--tls-key", str(key)]

    def started() -> tuple[int, str]:
        made = subprocess.run(
            [sys.executable, "-m", "trainmaster", *secured],
            capture_output=True,
            text=True,
            check=True,
        )
        found = re.search(r"Process (\d+), .*`(.*)` stops it", " ".join(made.stdout.split()))
        assert found is not None, made.stdout
        return int(found[1]), found[2]

    leader, stop_leader = started()
    standby, stop_standby = started()
    try:
        command = stop_standby.replace("trainmaster", f"{sys.executable} -m trainmaster")
        subprocess.run(command, shell=True, check=True)
        until(lambda: not is_alive(standby), "the standby to end")
        assert is_alive(leader)
    finally:
        command = stop_leader.replace("trainmaster", f"{sys.executable} -m trainmaster", 1)
        subprocess.run(command, shell=True, check=True)
        for pid in (leader, standby):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def test_behind_a_proxy_links_lead_to_the_proxy_and_its_name_is_served(tmp_path: Path) -> None:
    proxy = "https://tm.example.org"
    with live(tmp_path / "state", "--slots", "1", "--behind-proxy", proxy) as daemon:
        said = (daemon.folder / "out.txt").read_text()
        assert f"{proxy}/login?code=" in said
        found = daemon.call("GET", "/api/v1/nodes", Host="tm.example.org")
        assert found["nodes"]


REFUSED = {
    "--host 0.0.0.0": "would send tokens over the network in the clear",
    "--host 0.0.0.0 --tls-cert nowhere.crt": "--tls-cert and --tls-key belong together",
    "--tls-cert nowhere.crt --tls-key nowhere.key": "--tls-cert nowhere.crt cannot be read",
    "--behind-proxy http://tm.example.org": "give the proxy's address as https://HOST",
}


def test_exchanged_files_are_named_and_an_open_key_is_warned_of(
    tmp_path: Path, certificate: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    cert, key = certificate
    words = ["up", "--data", str(tmp_path / "state"), "--slots", "1"]
    assert main([*words, "--tls-cert", str(key), "--tls-key", str(cert)]) == 2
    assert "holds no certificate, and --tls-key" in " ".join(capsys.readouterr().err.split())
    daemon = LiveDaemon(tmp_path / "state", "--tls-cert", str(cert), "--tls-key", str(key))
    key.chmod(0o644)
    try:
        daemon.start()
        until(lambda: daemon.url, "its address")
        said = " ".join((daemon.folder / "out.txt").read_text().split())
        assert f"Warning: others can read or change --tls-key {key} (mode 0644)" in said
    finally:
        daemon.kill()


@pytest.mark.parametrize("options", REFUSED)
def test_what_would_be_open_is_refused(options: str, tmp_path: Path) -> None:
    daemon = LiveDaemon(tmp_path / "state", "--slots", "1", *options.split())
    daemon.start()
    assert daemon.process is not None
    assert daemon.process.wait(60) == 2
    assert REFUSED[options] in " ".join((daemon.folder / "out.txt").read_text().split())
