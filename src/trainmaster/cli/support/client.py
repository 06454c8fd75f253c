"""The manager's HTTP API, with the standard library only: `ps` has to start quickly."""

from __future__ import annotations

import getpass
import http.client
import json
import os
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self
from urllib.parse import quote, urlencode, urlsplit

from trainmaster.cli.support.daemon_address import find_address
from trainmaster.cli.support.errors import BadInput, Failed

ROOT = "/api/v1"
USER = "TRAINMASTER_USER"
PATIENCE_S = 60.0
"""How long one answer may take; streams say something at least every 15 s."""
RETRIES_S = (0.2, 0.5, 1.0, 2.0, 4.0, 8.0)
"""Pauses between tries while the manager is being restarted."""
NOT_FOUND = 404
NOT_YET = 503
"""It is being restarted, is a standby, or cannot reach its store; the same as no answer."""

Json = dict[str, Any]
Query = Mapping[str, str | int | None]


class Unreachable(Failed):
    """No answer, or the connection broke: the same may be asked again."""


class Refused(Failed):
    """The manager refused, in one sentence."""

    def __init__(self, sentence: str, status: int, code: str = "") -> None:
        super().__init__(sentence)
        self.status = status
        self.code = code


@dataclass(frozen=True, slots=True)
class Sent:
    """One server-sent event."""

    id: str
    name: str
    data: str

    def json(self) -> Json:
        found: Json = json.loads(self.data)
        return found


class Client:
    """One manager, as the command line talks to it."""

    def __init__(self, url: str) -> None:
        self.url = url
        split = urlsplit(url)
        self._is_safe = split.scheme == "https"
        self._host = split.hostname or "127.0.0.1"
        self._port = split.port
        self._before = split.path.rstrip("/")
        self._kept: http.client.HTTPConnection | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._drop()

    # -- plain calls ---------------------------------------------------------------------------------

    def get(self, path: str, query: Query | None = None) -> Json:
        return self._call("GET", path, query)

    def post(self, path: str, body: Json | None = None, query: Query | None = None) -> Json:
        return self._call("POST", path, query, body or {})

    def put(self, path: str, body: Json) -> Json:
        return self._call("PUT", path, None, body)

    def patch(self, path: str, body: Json) -> Json:
        return self._call("PATCH", path, None, body)

    def submit(self, body: Json, key: str, query: Query | None = None) -> Json:
        """Submit jobs exactly once, even if the connection breaks: the key marks a repeated request."""
        headers = {"Idempotency-Key": key}
        was_there = False
        for pause in (*RETRIES_S, None):
            try:
                return self._call("POST", "/jobs", query, body, headers)
            except Unreachable as error:
                was_there = was_there or not isinstance(error.__cause__, ConnectionRefusedError)
                if pause is None or not was_there:
                    raise
                time.sleep(pause)
        raise AssertionError  # pragma: no cover: the loop ends by return or raise

    def _call(
        self,
        method: str,
        path: str,
        query: Query | None = None,
        body: Json | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Json:
        response = self._ask(method, path, query, body, headers)
        try:
            text = response.read()
        except (http.client.HTTPException, OSError) as error:
            raise self._nobody(error) from error
        finally:
            self._drop()
        return _read_json(text)

    # -- streams -------------------------------------------------------------------------------------

    def download(self, path: str, query: Query | None = None) -> Iterator[bytes]:
        """A body as it comes, untouched; all of it, or Unreachable."""
        response = self._ask("GET", path, query)
        left = response.length
        try:
            while piece := response.read1(1 << 16):
                left = None if left is None else left - len(piece)
                yield piece
            if left:
                raise http.client.IncompleteRead(b"", left)
        except (http.client.HTTPException, OSError) as error:
            raise self._nobody(error) from error
        finally:
            self._drop()

    def events(self, path: str, query: Query | None = None, after: str = "") -> Iterator[Sent]:
        """Server-sent events until the server closes; `after` is the id of the last one seen."""
        headers = {"Accept": "text/event-stream"} | ({"Last-Event-ID": after} if after else {})
        response = self._ask("GET", path, query, None, headers)
        try:
            yield from read_events(response)
        except (http.client.HTTPException, OSError) as error:
            raise self._nobody(error) from error
        finally:
            self._drop()

    # -- the line ------------------------------------------------------------------------------------

    def _ask(
        self,
        method: str,
        path: str,
        query: Query | None = None,
        body: Json | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> http.client.HTTPResponse:
        stated = {key: value for key, value in (query or {}).items() if value is not None}
        target = f"{self._before}{ROOT}{path}" + (f"?{urlencode(stated)}" if stated else "")
        sent = None if body is None else json.dumps(body).encode()
        every = {"Accept": "application/json", "User-Agent": "trainmaster", **(headers or {})}
        if sent is not None:
            every["Content-Type"] = "application/json"
        try:
            line = self._line()
            line.request(method, target, sent, every)
            response = line.getresponse()
            if response.status < 400:
                return response
            text = response.read()
        except (http.client.HTTPException, OSError) as error:
            self._drop()
            raise self._nobody(error) from error
        self._drop()
        raise _refused(response.status, response.reason, text)

    def _line(self) -> http.client.HTTPConnection:
        """A new one each time: Ctrl-C may have left the last in the middle of an answer, and one that is
        kept may be closed by the manager before it is used again."""
        self._drop()
        kind = http.client.HTTPSConnection if self._is_safe else http.client.HTTPConnection
        self._kept = kind(self._host, self._port, timeout=PATIENCE_S)
        return self._kept

    def _drop(self) -> None:
        if self._kept is not None:
            self._kept.close()
            self._kept = None

    def _nobody(self, error: Exception) -> Unreachable:
        if isinstance(error, TimeoutError):
            return Unreachable(
                f"The Trainmaster at {self.url} has not answered for {PATIENCE_S:g} s: it is busy,"
                " or the network is; try again, or look into its log."
            )
        return Unreachable(
            f"No Trainmaster answers at {self.url}: start one with `trainmaster up`."
        )


def connect(url: str | None, data: Path | None) -> Client:
    """The manager that these options and the environment point to."""
    found = find_address(url, data)
    if found is None:
        where = f"in {data}" if data else "here"
        raise Failed(
            f"No Trainmaster runs {where}: start one with `trainmaster up`, or say where it is with --url."
        )
    return Client(found.url)


def of(job: str, what: str = "") -> str:
    """The path of one job, or of something of it."""
    if not job:
        raise BadInput("A job's id or name is missing: `trainmaster ps` lists them.")
    return f"/jobs/{quote(job, safe='')}" + (f"/{what}" if what else "")


def read_events(lines: Iterator[bytes] | http.client.HTTPResponse) -> Iterator[Sent]:
    """Server-sent events by the lines of their stream: fields, and an empty line after each."""
    last, name = "", ""
    data: list[str] = []
    for raw in lines:
        line = raw.decode("utf-8", "replace").rstrip("\r\n")
        if not line:
            if data:
                yield Sent(last, name or "message", "\n".join(data))
            name, data = "", []
            continue
        field, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if field == "data":
            data.append(value)
        elif field == "event":
            name = value
        elif field == "id":
            last = value


def _read_json(text: bytes) -> Json:
    if not text.strip():
        return {}
    try:
        found = json.loads(text)
    except ValueError:
        raise Failed(
            "What answers there is not Trainmaster: check the address given with --url."
        ) from None
    return found if isinstance(found, dict) else {"answer": found}


def _refused(status: int, reason: str, text: bytes) -> Refused | Unreachable:
    try:
        said = json.loads(text)["error"]
        sentence, code = str(said["sentence"]), str(said.get("code", ""))
        return Unreachable(sentence) if status == NOT_YET else Refused(sentence, status, code)
    except (ValueError, KeyError, TypeError):
        pass
    if status == NOT_YET:
        return Unreachable(f"The manager answered {status} {reason}: try again, or see its log.")
    if status == NOT_FOUND:
        return Refused("What answers there does not know this request: is it Trainmaster?", status)
    return Refused(f"The manager answered {status} {reason}; its log says more.", status)


def my_name() -> str:
    """The user name that jobs are submitted under."""
    stated = os.environ.get(USER, "")
    if stated:
        return stated
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a user id without an entry, as in a container
        return str(os.getuid())
