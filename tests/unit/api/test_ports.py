"""Ports of jobs over the API: for the job's owner and operators, carried both ways, over TLS too."""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from starlette.testclient import TestClient

from tests.api_service import MemoryService
from trainmaster.api.app import create_app
from trainmaster.api.peer import FromPeer, Peer
from trainmaster.cli.support.tunnel import carry
from trainmaster.client.connection import Place, fingerprint
from trainmaster.client.manager_api import ManagerApi, RequestRefused
from trainmaster.daemon.unix_users import user_name

V1 = "/api/v1"
OWN, OTHER = os.geteuid(), 65534


def as_user(service: MemoryService, uid: int) -> TestClient:
    app: Any = FromPeer(create_app(service), Peer(1, uid, uid))
    return TestClient(app, base_url="http://127.0.0.1:8470")


def submitted(service: MemoryService, user: str) -> str:
    with as_user(service, OWN) as client:
        said = client.post(f"{V1}/jobs", json={"command": "true", "user": user, "name": "board"})
        return str(said.json()["jobs"][0]["id"])


@contextmanager
def echo() -> Iterator[int]:
    """A program that sends back what it gets, in capitals."""

    def answer(line: socket.socket) -> None:
        with line:
            while piece := line.recv(65536):
                line.sendall(piece.upper())
            line.sendall(b".")

    def accept() -> None:
        while True:
            try:
                line, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=answer, args=(line,), daemon=True).start()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=accept, daemon=True).start()
        yield listener.getsockname()[1]
        listener.shutdown(socket.SHUT_RDWR)


@pytest.mark.parametrize("method", ["GET", "POST"])
def test_a_port_of_another_s_job_is_one_of_no_job(service: MemoryService, method: str) -> None:
    mine, theirs = submitted(service, user_name(OTHER)), submitted(service, "ada")
    with echo() as port:
        service.ports = {(mine, port), (theirs, port)}
        with as_user(service, OTHER) as client:
            assert client.request(method, f"{V1}/jobs/{mine}/ports/{port}").status_code == 200
            refused = client.request(method, f"{V1}/jobs/{theirs}/ports/{port}")
            missing = client.request(method, f"{V1}/jobs/99/ports/{port}")
        assert (refused.status_code, missing.status_code) == (404, 404)
        assert refused.json()["error"]["sentence"].startswith(f"There is no job {theirs}")
        assert missing.json()["error"]["sentence"].startswith("There is no job 99")
        asyncio.run(service.accounts.set_role(user_name(OTHER), "operator"))
        with as_user(service, OTHER) as client:
            assert client.request(method, f"{V1}/jobs/{theirs}/ports/{port}").status_code == 200


def test_a_port_that_the_job_does_not_have_is_refused(service: MemoryService) -> None:
    job = submitted(service, "ada")
    with echo() as port, as_user(service, OWN) as client:
        said = client.get(f"{V1}/jobs/{job}/ports/{port}")
        assert said.status_code == 409
        assert "listens on port" in said.json()["error"]["sentence"]
        assert client.get(f"{V1}/jobs/{job}/ports/70000").status_code == 422


@pytest.fixture
def certificate(tmp_path: Path) -> tuple[Path, Path]:
    made = tmp_path / "cert.pem", tmp_path / "key.pem"
    subprocess.run(
        [
            *(
                "openssl",
                "req",
                "-x509",
                "-newkey",
                "ec",
                "-pkeyopt",
                "ec_paramgen_curve:prime256v1",
            ),
            *("-nodes", "-subj", "/CN=127.0.0.1", "-days", "2"),
            *("-out", str(made[0]), "-keyout", str(made[1])),
        ],
        check=True,
        capture_output=True,
    )
    return made


@contextmanager
def served(service: MemoryService, certificate: tuple[Path, Path] | None) -> Iterator[int]:
    """The API on a port of this machine, by TLS where there is a certificate."""
    chain, key = certificate or (None, None)
    config = uvicorn.Config(
        create_app(service),
        log_config=None,
        lifespan="off",
        ssl_certfile=chain,
        ssl_keyfile=None if key is None else str(key),
    )
    server = uvicorn.Server(config)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
        thread.start()
        yield listener.getsockname()[1]
        server.should_exit = True
        thread.join(60)


@pytest.mark.parametrize("is_secure", [False, True], ids=["plain", "TLS"])
def test_both_ways_at_once(
    service: MemoryService, certificate: tuple[Path, Path], is_secure: bool
) -> None:
    """More than all buffers hold, sent and read at the same time; then the end of one side only."""
    job = submitted(service, "ada")
    _, token = asyncio.run(service.accounts.create_token("ada", "user"))
    sent = b"abcdefgh" * 250_000
    with echo() as port, served(service, certificate if is_secure else None) as server:
        service.ports = {(job, port)}
        pin = fingerprint(ssl.PEM_cert_to_DER_cert(certificate[0].read_text()))
        scheme = "https" if is_secure else "http"
        place = Place(f"{scheme}://127.0.0.1:{server}", pin=pin if is_secure else None)
        client = ManagerApi.at(place, token)
        near, far = socket.socketpair()
        carrier = threading.Thread(target=carry, args=(client, f"/jobs/{job}/ports/{port}", far))
        carrier.start()
        writer = threading.Thread(
            target=lambda: (near.sendall(sent), near.shutdown(socket.SHUT_WR))
        )
        writer.start()
        got = bytearray()
        near.settimeout(60)
        while len(got) <= len(sent):
            got += near.recv(65536)
        writer.join()
        carrier.join(60)
        assert got == sent.upper() + b"."
        with pytest.raises(RequestRefused, match="listens on port"):
            carry(client, f"/jobs/{job}/ports/1", far)
        near.close()
        far.close()
