"""The manager's HTTP API, with the standard library only: `ps` has to start quickly."""

from __future__ import annotations

import getpass
import json
import math
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from email.message import Message
from http.client import (
    BadStatusLine,
    HTTPConnection,
    HTTPException,
    HTTPResponse,
    IncompleteRead,
    RemoteDisconnected,
)
from pathlib import Path
from ssl import SSLCertVerificationError, SSLError
from typing import Any
from urllib.parse import quote, urlencode

from trainmaster.api.headers import STORE_HEADER
from trainmaster.client.address import find_address, is_manager, place_of
from trainmaster.client.connection import Place, connection_to
from trainmaster.client.peer_check import OtherUsersProgram, Stranger
from trainmaster.client.token_source import token_for
from trainmaster.errors import BadInput, Failed

ROOT = "/api/v1"
USER = "TRAINMASTER_USER"
PATIENCE_S = 60.0
"""How long one answer may take; streams send something at least every 15 s."""
SHORTEST_S = 0.01
"""How long an answer may take where the user's time is over."""
RETRIES_S = (0.2, 0.5, 1.0, 2.0, 4.0, 8.0)
"""Pauses between tries while the manager is being restarted."""
REFUSED = 400
"""The lowest status of answers that are refusals."""
PLAIN_USER = "user"
"""The role of those who see only their own jobs in full."""
NO_TOKEN = 401
NOT_FOUND = 404
TOO_MANY = 429
NOT_YET = 503
"""It is being restarted, is a standby, or cannot reach its store; the same as no answer."""
OVER_LIMIT = "over_user_limit"
"""The code of an answer that comes because the caller asks too often, or too much at once."""
LONGEST_PAUSE_S, ALL_PAUSES_S = 10.0, 30.0
"""How long such answers are waited out, one and together."""
NOBODY = (ConnectionRefusedError, FileNotFoundError, Stranger)
"""Why a request was not sent at all: no manager is there."""

TOKEN_NEEDED = (
    "This manager needs a token: `trainmaster token new` on its machine makes one; set TRAINMASTER_TOKEN,"
    " or give --token-file FILE."
)
WRONG_TOKEN = (
    "The manager does not know this token: it has expired, was revoked, or is for another manager;"
    " `trainmaster token new` on its machine makes a new one."
)

Json = dict[str, Any]
Query = Mapping[str, str | int | None]


class Unreachable(Failed):
    """No answer, or the connection broke: the request may be repeated."""


class NotYet(Unreachable):
    """An answer that it cannot do this now, in one sentence."""


class TooOften(Failed):
    """The caller's own limit is reached: it may be repeated after a pause."""

    def __init__(self, sentence: str, pause_s: float) -> None:
        super().__init__(sentence)
        self.pause_s = pause_s


class OtherManager(Failed):
    """Another manager answers than the one that was asked before: its jobs are others."""


class RequestRefused(Failed):
    """The manager refused, in one sentence."""

    def __init__(self, sentence: str, status: int) -> None:
        super().__init__(sentence)
        self.status = status


@dataclass(frozen=True, slots=True)
class ServerEvent:
    """One server-sent event."""

    id: str
    name: str
    data: str

    def json(self) -> Json:
        found: Json = json.loads(self.data)
        return found


@dataclass(frozen=True, slots=True)
class Request:
    """What is asked for."""

    method: str
    target: str
    headers: dict[str, str]
    body: bytes | None = None


class ManagerApi:
    """The manager that these options and the environment point to."""

    def __init__(
        self, url: str | None = None, data: Path | None = None, token_file: Path | None = None
    ) -> None:
        self._stated = url, data
        self._token_file = token_file
        self._token: str | None = None
        """In place of all others."""
        self._place: Place | None = None
        self._store = ""
        """The database of the manager that has answered before."""
        self._caller: Json | None = None
        self._uuids: dict[str, str] = {}
        """By id: the jobs that were asked for."""
        self.has_answered = False
        """Whether a manager has answered at all."""
        self.until = math.inf
        """When its user stops waiting for answers, by the monotonic clock."""
        self.notes: Sequence[str] = ()
        """What the last list said of the manager: what does not work as it should."""

    @classmethod
    def at(cls, place: Place, token: str) -> ManagerApi:
        """One for this very manager."""
        made = cls()
        made._place, made._token = place, token
        return made

    @property
    def place(self) -> Place:
        if self._place is None:
            self._place = find_address(*self._stated)
        return self._place

    @property
    def url(self) -> str:
        """Where it is, for people."""
        return self.place.url

    @property
    def stated(self) -> tuple[str | None, Path | None]:
        """The address and the data folder that its user has named."""
        return self._stated

    def caller(self) -> Json:
        """Who the user is to this manager: `user`, `role` and how it knows."""
        if self._caller is None:
            try:
                self._caller = self.get("/caller")
            except RequestRefused as no:
                if no.status != NOT_FOUND:
                    raise
                self._caller = {"user": my_name(), "role": "admin"}  # of an earlier version
        return self._caller

    def my_name(self) -> str:
        """The user that one's jobs are submitted under."""
        return os.environ.get(USER) or str(self.caller()["user"])

    def is_mine(self, user: str) -> bool:
        """Whether jobs of this user are the caller's own."""
        return user in (os.environ.get(USER), self.caller()["user"])

    def only_own(self) -> str | None:
        """The user whose jobs alone are of use to the caller; None for those who see the jobs of all."""
        return str(self.caller()["user"]) if self.caller()["role"] == PLAIN_USER else None

    @property
    def is_late(self) -> bool:
        return time.monotonic() >= self.until

    def look_again(self) -> bool:
        """Read the address file again; whether the manager is at another place now."""
        now = self._in_file()
        if self._place is None or now is None or now == self._place:
            return False
        self._place = now
        return True

    def check_job(self, id: str, uuid: str | None) -> None:
        """OtherManager where another job has this id than before: the database is an older one."""
        if uuid and self._uuids.setdefault(id, uuid) != uuid:
            raise OtherManager(
                f"Job {id} is another job now: the manager at {self.url} was started with an older"
                " database."
            )

    def _in_file(self) -> Place | None:
        """What the file that named the manager says now; None while it names none."""
        folder = None if self._place is None else self._place.folder
        return None if folder is None else place_of(folder)

    def get(self, path: str, query: Query | None = None) -> Json:
        return self._call(self._request("GET", path, query))

    def post(self, path: str, body: Json | None = None, query: Query | None = None) -> Json:
        return self._call(self._request("POST", path, query, body or {}))

    def put(self, path: str, body: Json) -> Json:
        return self._call(self._request("PUT", path, None, body))

    def delete(self, path: str) -> Json:
        return self._call(self._request("DELETE", path))

    def patch(self, path: str, body: Json) -> Json:
        return self._call(self._request("PATCH", path, None, body))

    def submit(self, body: Json, key: str) -> Json:
        """Submit jobs exactly once, even if the connection breaks: the key marks a repeated request."""
        was_there = False
        for pause in (*RETRIES_S, None):
            request = self._request("POST", "/jobs", None, body)
            request.headers["Idempotency-Key"] = key
            try:
                return self._call(request)
            except Unreachable as error:
                was_there = was_there or not isinstance(error.__cause__, NOBODY)
                if pause is None or not was_there:
                    raise
                time.sleep(pause)
                self.look_again()
        raise AssertionError  # pragma: no cover: the loop ends by return or raise

    def download(self, path: str, query: Query | None = None) -> Iterator[bytes]:
        """A body as it comes, untouched; all of it, or Unreachable."""
        with self._answer(self._request("GET", path, query)) as response:
            left = response.length
            while piece := response.read1(1 << 16):
                left = None if left is None else left - len(piece)
                yield piece
            if left:
                raise IncompleteRead(b"", left)

    def events(
        self, path: str, query: Query | None = None, after: str = ""
    ) -> Iterator[ServerEvent]:
        """Server-sent events until the server closes; `after` is the id of the last one seen."""
        request = self._request("GET", path, query)
        request.headers["Accept"] = "text/event-stream"
        if after:
            request.headers["Last-Event-ID"] = after
        with self._answer(request) as response:
            yield from read_events(response)

    def open(self, method: str, path: str) -> tuple[HTTPConnection, Request]:
        """A connection that is made and checked, and a request to send there by hand, with its token."""
        request = self._request(method, path)
        connection = connection_to(self.place, PATIENCE_S)
        try:
            connection.connect()
            token = self._token or token_for(self.place, self._token_file)
        except Stranger as error:
            raise Unreachable(str(error)) from error
        except OSError as error:
            raise self._unreachable(error) from error
        if token is not None:
            request.headers["Authorization"] = f"Bearer {token}"
        return connection, request

    def _request(
        self, method: str, path: str, query: Query | None = None, body: Json | None = None
    ) -> Request:
        stated = {key: value for key, value in (query or {}).items() if value is not None}
        target = f"{self.place.prefix}{ROOT}{path}" + (f"?{urlencode(stated)}" if stated else "")
        headers = {"Accept": "application/json", "User-Agent": "trainmaster", "Connection": "close"}
        if body is None:
            return Request(method, target, headers)
        headers["Content-Type"] = "application/json"
        return Request(method, target, headers, json.dumps(body).encode())

    def _call(self, request: Request) -> Json:
        with self._answer(request) as response:
            text = response.read()
        if not text.strip():
            return {}
        try:
            found = json.loads(text)
        except ValueError:
            raise self._not_ours() from None
        if not isinstance(found, dict):
            raise self._not_ours()
        self.notes = found.get("notes", self.notes)
        return found

    @contextmanager
    def _answer(self, request: Request) -> Iterator[HTTPResponse]:
        """The answer to a request, to be read; that the caller asks too often is waited out."""
        last = min(time.monotonic() + ALL_PAUSES_S, self.until)
        with ExitStack() as stack:
            while True:
                try:
                    response = stack.enter_context(self._one_answer(request))
                    break
                except TooOften as error:
                    if time.monotonic() + error.pause_s > last:
                        raise RequestRefused(str(error), TOO_MANY) from error
                    time.sleep(error.pause_s)
            yield response

    @contextmanager
    def _one_answer(self, request: Request) -> Iterator[HTTPResponse]:
        """The answer, to be read; any error meanwhile becomes Unreachable, TooOften or RequestRefused."""
        patience = max(min(PATIENCE_S, self.until - time.monotonic()), SHORTEST_S)
        connection = connection_to(self.place, patience)
        try:
            connection.connect()  # and check who is there, before anything is sent
            token = self._token or token_for(self.place, self._token_file)
            if token is not None:
                request.headers["Authorization"] = f"Bearer {token}"
            with suppress(
                BrokenPipeError, ConnectionResetError
            ):  # it may answer before it has read all
                connection.request(request.method, request.target, request.body, request.headers)
            with connection.getresponse() as response:
                if response.status != TOO_MANY:  # which may come before the request was read
                    self._check_manager(response.headers)
                if response.status >= REFUSED:
                    raise _refused(response, has_token=token is not None)
                yield response
        except Stranger as error:
            raise Unreachable(f"{error}{self._remedy(error)}") from error
        except (HTTPException, OSError) as error:
            raise self._unreachable(error) from error
        finally:
            connection.close()

    def _remedy(self, error: Stranger) -> str:
        """What to do where another user's program answers."""
        if not isinstance(error, OtherUsersProgram):
            return ""
        folder = self.place.folder
        if folder is None:
            return " If it is a manager that you trust, name its data folder with --data."
        return f" The manager of {folder} does not run: `trainmaster up --data {folder}` starts it."

    def _check_manager(self, headers: Message) -> None:
        """Whether this is an answer of a manager, and of the one that was asked before."""
        store = headers.get(STORE_HEADER)
        if store is None and not self.has_answered and not is_manager(self.place):
            raise self._not_ours()  # managers of earlier versions do not send it
        self.has_answered = True
        if store and self._store and store != self._store:
            raise self._other_manager()
        self._store = store or self._store

    def _not_ours(self) -> Failed:
        return Failed(
            f"What answers at {self.url} is not a Trainmaster manager: check the address, or start one"
            " with `trainmaster up`."
        )

    def _other_manager(self) -> Unreachable | OtherManager:
        folder = None if self._place is None else self._place.folder
        if folder is not None and self._in_file() != self.place:  # ours is gone, or elsewhere
            return Unreachable(
                f"The manager of {folder} does not run, and another one answers at {self.url} now:"
                f" start it with `trainmaster up --data {folder}`."
            )
        return OtherManager(
            f"Another manager, with jobs of its own, answers at {self.url} now: say where the one that"
            " was asked before is, with --url or --data."
        )

    def _unreachable(self, cause: object) -> Unreachable | Failed:
        if isinstance(cause, TimeoutError):
            return Unreachable(
                f"The Trainmaster at {self.url} has not answered for {PATIENCE_S:g} s: it is busy,"
                " or the network is; try again, or look into its log."
            )
        if isinstance(cause, SSLCertVerificationError):
            return Failed(
                f"Nothing was sent to {self.url}: its certificate is not known here"
                f" ({cause.verify_message}); `trainmaster token use {self.url}` shows and confirms it."
            )
        if isinstance(cause, SSLError):
            return Failed(f"{self.url} does not speak TLS as it should: {cause.reason or cause}.")
        if isinstance(cause, BadStatusLine) and not isinstance(cause, RemoteDisconnected):
            return self._not_ours()
        return Unreachable(
            f"No Trainmaster answers at {self.url}: start one with `trainmaster up`."
        )


def job_path(job: str, what: str = "") -> str:
    """The path of one job, or of something of it."""
    if not job:
        raise BadInput("A job's id or name is missing: `trainmaster ps` lists them.")
    return f"/jobs/{quote(job, safe='')}" + (f"/{what}" if what else "")


def read_events(lines: Iterator[bytes] | HTTPResponse) -> Iterator[ServerEvent]:
    """Server-sent events by the lines of their stream: fields, and an empty line after each."""
    last, name = "", ""
    data: list[str] = []
    for raw in lines:
        line = raw.decode("utf-8", "replace").rstrip("\r\n")
        if not line:
            if data:
                yield ServerEvent(last, name or "message", "\n".join(data))
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


def _refused(response: HTTPResponse, *, has_token: bool) -> Failed:
    status, reason, text = response.status, response.reason, response.read()
    if status == NO_TOKEN:
        return RequestRefused(WRONG_TOKEN if has_token else TOKEN_NEEDED, status)
    try:
        said = json.loads(text)["error"]
        sentence = str(said["sentence"])
        if status == TOO_MANY and said.get("code") == OVER_LIMIT:
            return TooOften(sentence, _pause(response.headers.get("Retry-After", "")))
        return NotYet(sentence) if status == NOT_YET else RequestRefused(sentence, status)
    except (ValueError, KeyError, TypeError):
        pass
    if status == NOT_YET:
        return Unreachable(f"The manager answered {status} {reason}: try again, or see its log.")
    if status == NOT_FOUND:
        return RequestRefused(
            "What answers there does not know this request: is it Trainmaster?", status
        )
    return RequestRefused(f"The manager answered {status} {reason}; its log says more.", status)


def _pause(stated: str) -> float:
    """How long to wait, as the answer says."""
    return min(float(stated), LONGEST_PAUSE_S) if stated.isdecimal() else 1.0


def my_name() -> str:
    """The user name that jobs are submitted under."""
    stated = os.environ.get(USER, "")
    if stated:
        return stated
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a user id without an entry, as in a container
        return str(os.getuid())
