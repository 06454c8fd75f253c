"""A daemon's HTTP side for tests of the command line: it answers what a test has written down.

Every answer is checked against the API's own OpenAPI document, so that no test passes on an answer that the
real one never gives.
"""

from __future__ import annotations

import json
import re
import socket
import ssl
import struct
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from pydantic import TypeAdapter, ValidationError

from tests.api_service import MemoryService
from trainmaster.api.app import create_app
from trainmaster.daemon import job_rows, response_models, whatif_rows

ROOT = "/api/v1"
STORE_HEADER = "Trainmaster-Store"


@dataclass(frozen=True)
class Asked:
    """One request, as it came."""

    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: Any


@dataclass(frozen=True)
class Answer:
    status: int = 200
    body: Any = field(default_factory=dict)
    kind: str = "application/json"
    breaks: bool = False
    """The line is cut instead of, or in the middle of, the answer."""
    store: str = "0f" * 16
    """The database of the manager that answers."""

    def encoded(self) -> bytes:
        return self.body if isinstance(self.body, bytes) else json.dumps(self.body).encode()


Script = Answer | Callable[[Asked], Answer]


def refusal(status: int, code: str, sentence: str) -> Answer:
    return Answer(status, {"error": {"code": code, "sentence": sentence}})


def stream(*events: str, breaks: bool = False) -> Answer:
    return Answer(200, "".join(events).encode(), "text/event-stream", breaks)


@cache
def _schemas() -> list[tuple[str, re.Pattern[str], dict[str, Any]]]:
    """Of every route of the API: its method, its path, and the schema of each of its JSON answers."""
    app = create_app(MemoryService(Path()))
    found = []
    for path, operations in app.openapi()["paths"].items():
        pattern = re.compile(re.sub(r"\\{\w+\\}", "[^/]+", re.escape(path.removeprefix(ROOT))))
        for method, operation in operations.items():
            content = {
                status: answer["content"].get("application/json", {}).get("schema")
                for status, answer in operation["responses"].items()
            }
            found.append((method.upper(), pattern, content))
    return found


ROWS = (job_rows, response_models, whatif_rows)
"""Where the models of answers are."""


@cache
def _adapter(name: str) -> TypeAdapter[object]:
    return TypeAdapter(next(getattr(rows, name) for rows in ROWS if hasattr(rows, name)))


def fault_of(method: str, path: str, answer: Answer) -> str | None:
    """What the API would never answer so; None where it might."""
    if not isinstance(answer.body, dict):
        return None
    for known, pattern, content in _schemas():
        if known == method and pattern.fullmatch(path) and content.get(str(answer.status)):
            schema = content[str(answer.status)]
            names = [each["$ref"].rpartition("/")[2] for each in schema.get("anyOf", [schema])]
            faults = []
            for name in names:
                try:
                    _adapter(name).validate_json(json.dumps(answer.body))
                    return None
                except ValidationError as error:
                    faults.append(f"{method} {path}: {error}")
            return "\n".join(faults)
    return None


class Counterpart:
    """Answers by method and path: the first of a list each time, the last for ever."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.asked: list[Asked] = []
        self._scripts: dict[tuple[str, str], list[Script]] = {}
        self._lock = threading.Lock()
        self.caller_status = 200
        self.caller: dict[str, Any] = {
            "user": "ada",
            "role": "admin",
            "via": "socket",
            "uid": 0,
            "token": None,
        }
        self.faults: list[str] = []
        """Answers that the API would never give."""

    def on(self, method: str, path: str, *answers: Script | dict[str, Any]) -> None:
        made = [Answer(body=each) if isinstance(each, dict) else each for each in answers]
        self._scripts[(method, path)] = made

    def answer(self, asked: Asked) -> Answer:
        if (asked.method, asked.path) == (
            "GET",
            "/caller",
        ):  # many commands ask, and no test counts it
            return Answer(self.caller_status, self.caller)
        with self._lock:
            self.asked.append(asked)
            scripts = self._scripts.get((asked.method, asked.path))
            if not scripts:
                return refusal(404, "not_found", f"Nobody knows {asked.path}.")
            script = scripts.pop(0) if len(scripts) > 1 else scripts[0]
        answer = script(asked) if callable(script) else script
        fault = fault_of(asked.method, asked.path, answer)
        if fault is not None:
            self.faults.append(fault)
        return answer

    def bodies(self, method: str, path: str) -> list[Any]:
        return [each.body for each in self.asked if (each.method, each.path) == (method, path)]


class UnixServer(ThreadingHTTPServer):
    """One on a Unix socket."""

    address_family = socket.AF_UNIX

    def server_bind(self) -> None:
        self.socket.bind(self.server_address)
        self.server_name, self.server_port = "localhost", 0

    def get_request(self) -> tuple[socket.socket, Any]:
        return self.socket.accept()[0], ("local", 0)


@contextmanager
def serving(
    unix: Path | None = None, certificate: tuple[Path, Path] | None = None, port: int = 0
) -> Iterator[Counterpart]:
    """One on a free port of this machine, or on a Unix socket, gone afterwards."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of pydantic about FastAPI's own headers
        _schemas()  # here and not in a thread of the server, where a warning would be an answer
        for kind in (*job_rows.ResponseModel.__subclasses__(), response_models.JobDetails):
            _adapter(kind.__name__)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            size = int(self.headers.get("Content-Length") or 0)
            text = self.rfile.read(size)
            split = urlsplit(self.path)
            asked = Asked(
                self.command,
                unquote(split.path.removeprefix(ROOT)),
                dict(parse_qsl(split.query)),
                {name.lower(): value for name, value in self.headers.items()},
                json.loads(text) if text else None,
            )
            self.close_connection = True
            _send(self, counterpart.answer(asked))

        do_POST = do_PUT = do_PATCH = do_DELETE = do_GET

        def log_message(self, format: str, *args: object) -> None:
            """Tests are quiet."""

    if unix is None:
        server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
        counterpart = Counterpart(f"http://127.0.0.1:{server.server_address[1]}")
    else:
        server = UnixServer(str(unix), Handler)  # type: ignore[arg-type]
        counterpart = Counterpart(f"unix:{unix}")
    if certificate is not None:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(*certificate)
        server.socket = context.wrap_socket(server.socket, server_side=True)
        counterpart.url = counterpart.url.replace("http:", "https:")
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield counterpart
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
    assert not counterpart.faults, "\n".join(dict.fromkeys(counterpart.faults))


def _send(request: BaseHTTPRequestHandler, answer: Answer) -> None:
    content = answer.encoded()
    if answer.breaks and not content:
        _cut(request.connection)
        return
    request.send_response(answer.status)
    request.send_header("Content-Type", answer.kind)
    request.send_header(STORE_HEADER, answer.store)
    if not answer.breaks:
        request.send_header("Connection", "close")
        if answer.kind != "text/event-stream":
            request.send_header("Content-Length", str(len(content)))
    else:
        request.send_header("Content-Length", str(len(content) + 1000))
    with suppress(BrokenPipeError, ConnectionResetError):  # who was interrupted is gone
        request.end_headers()
        request.wfile.write(content)
        request.wfile.flush()


def _cut(line: socket.socket) -> None:
    """As when the daemon is killed: the line is reset."""
    line.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    line.close()
