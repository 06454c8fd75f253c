"""Connections to a manager: by its Unix socket, by TCP on this machine, or by TLS.

Each is checked when it is made, before a request, a token or a body is sent.
"""

from __future__ import annotations

import socket
import ssl
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPSConnection
from pathlib import Path
from urllib.parse import urlsplit

from trainmaster.api.front import fingerprint
from trainmaster.client.peer_check import (
    Stranger,
    check_path,
    check_peer,
    connect_checked,
    trusted,
)

UNIX = "unix:"
HTTP_PORT, HTTPS_PORT = 80, 443


@dataclass(frozen=True, slots=True)
class Place:
    """Where a manager answers."""

    url: str
    """For people; asked there where it has no socket."""
    socket: Path | None = None
    folder: Path | None = None
    """The data folder whose address file says so; None where no file does."""
    owner: int | None = None
    """Whose manager may answer there, beside the caller's own and root's."""
    pin: str | None = None
    """Fingerprint of its certificate; None: one that the system's authorities vouch for."""

    @property
    def prefix(self) -> str:
        """What stands before each path, behind a proxy that serves several things."""
        return "" if self.socket is not None else urlsplit(self.url).path.rstrip("/")

    @property
    def is_tcp(self) -> bool:
        return self.socket is None


class UnixConnection(HTTPConnection):
    """HTTP through a Unix socket, to a program of a trusted user."""

    def __init__(self, path: Path, owner: int | None, timeout: float) -> None:
        super().__init__("localhost", timeout=timeout)
        self._path = path
        self._users = trusted(owner)

    def connect(self) -> None:
        check_path(self._path, self._users)
        made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            made.settimeout(self.timeout)
            made.connect(str(self._path))
            check_peer(made, str(self._path), self._users)
        except BaseException:
            made.close()
            raise
        self.sock = made


class LocalConnection(HTTPConnection):
    """HTTP to a port of this machine, where a program of a trusted user listens."""

    def __init__(self, host: str, port: int, owner: int | None, timeout: float) -> None:
        super().__init__(host, port, timeout=timeout)
        self._users = trusted(owner)

    def connect(self) -> None:
        assert self.timeout is not None
        self.sock = connect_checked(self.host, self.port, self._users, self.timeout)
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


class PinnedConnection(HTTPSConnection):
    """TLS to a manager whose certificate is known by its fingerprint; no authority is asked."""

    def __init__(self, host: str, port: int, pin: str, timeout: float) -> None:
        super().__init__(host, port, timeout=timeout, context=any_certificate())
        self._pin = pin

    def connect(self) -> None:
        super().connect()
        seen = fingerprint_of(self.sock)
        if seen != self._pin:
            self.close()
            raise Stranger(
                f"Nothing was sent to https://{self.host}:{self.port}: its certificate is {seen} and not the"
                f" one that was confirmed, {self._pin}. If it was renewed, compare the new one with what"
                " `trainmaster status` shows on that machine, and call `trainmaster token use` again."
            )


def any_certificate() -> ssl.SSLContext:
    """TLS that takes any certificate, for those that are compared by their fingerprint."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def fingerprint_of(connection: ssl.SSLSocket) -> str:
    """The fingerprint of the other side's certificate."""
    return fingerprint(connection.getpeercert(binary_form=True) or b"")


def connection_to(place: Place, timeout: float) -> HTTPConnection:
    """A connection that is made, and checked, when it is first used."""
    if place.socket is not None:
        return UnixConnection(place.socket, place.owner, timeout)
    parts = urlsplit(place.url)
    host = parts.hostname or ""
    if parts.scheme == "http":
        return LocalConnection(host, parts.port or HTTP_PORT, place.owner, timeout)
    port = parts.port or HTTPS_PORT
    if place.pin is not None:
        return PinnedConnection(host, port, place.pin, timeout)
    return HTTPSConnection(host, port, timeout=timeout, context=ssl.create_default_context())
