"""HTTP over a Unix socket, as any user of this machine: what another user can do is tried as that user."""

from __future__ import annotations

import json
import os
import pickle
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from http.client import HTTPConnection
from typing import Any, TypeVar

ADA, BOB = 64_001, 64_002
"""Unix users that nobody has; they need no account."""
TIMEOUT_S = 60.0
T = TypeVar("T")


class UnixConnection(HTTPConnection):
    """A connection to the program that listens on this socket."""

    def __init__(self, path: str) -> None:
        super().__init__("localhost", timeout=TIMEOUT_S)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(TIMEOUT_S)
        self.sock.connect(self._path)


@dataclass(frozen=True)
class Answer:
    status: int
    headers: dict[str, str]
    content: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.content)

    @property
    def text(self) -> str:
        return self.content.decode(errors="replace")


def ask(
    connection: HTTPConnection,
    method: str,
    path: str,
    body: object = None,
    headers: Mapping[str, str] | None = None,
) -> Answer:
    """One request; the answer is read whole."""
    data = None if body is None else json.dumps(body).encode()
    try:
        connection.request(
            method, path, data, {"content-type": "application/json", **(headers or {})}
        )
        answer = connection.getresponse()
        found = {name.lower(): value for name, value in answer.getheaders()}
        return Answer(answer.status, found, answer.read())
    finally:
        connection.close()


def as_user(uid: int, act: Callable[[], T]) -> T:
    """Do this in a child process of that user; what it returns or raises is ours."""
    assert os.geteuid() == 0, "This test acts as another user of this machine, and needs root."
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.setgroups([])
            os.setgid(uid)
            os.setuid(uid)
            said: tuple[bool, object] = (True, act())
        except BaseException as error:  # told to the parent
            said = (False, error)
        with os.fdopen(writer, "wb") as out:
            pickle.dump(said, out)
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as told:
        has_worked, found = pickle.load(told)
    os.waitpid(child, 0)
    if not has_worked:
        raise found
    result: T = found
    return result
