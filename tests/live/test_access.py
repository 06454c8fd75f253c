"""Another user cannot touch, read or see anything of my job, over any route there is.

The routes are those of the application itself, so that a new one cannot be forgotten; who asks is decided by
the kernel and by tokens, on a real manager.
"""

from __future__ import annotations

import http.client
import json
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote, urlsplit

import pytest
from fastapi.routing import iter_route_contexts

from tests.api_service import MemoryService
from tests.live.daemons import OpenDaemon, sweep, until
from tests.unix_http import ADA, BOB, Answer, UnixConnection, as_user, ask
from trainmaster.api.access import TABLE, Need
from trainmaster.api.app import create_app

pytestmark = pytest.mark.live

SECRET, OUTPUT, NAME = "secret-value-7f3a", "output-line-91bc", "job-name-c2d4"
FOLDER, FILE, ARGUMENT = "folder-name-5e6f", "output-file-a7b8", "argument-d9e0"
MARKS = (SECRET, OUTPUT, NAME, FOLDER, FILE, ARGUMENT)
"""What only the owner of the job may see."""
V1 = "/api/v1"
ENDLESS = f"{V1}/changes"
BODIES: dict[tuple[str, str], object] = {
    ("POST", f"{V1}/jobs"): {"command": "true", "user": f"uid-{ADA}"},
    ("PATCH", f"{V1}/jobs/{{job}}"): {"priority": 9},
    ("POST", f"{V1}/jobs/{{job}}/move"): {"node": "n0"},
    ("PUT", f"{V1}/queues/{{name:path}}"): {"weight": 2},
    ("PUT", f"{V1}/policy"): {"name": "fifo"},
    ("POST", f"{V1}/tokens"): {"user": "eve", "role": "admin"},
    ("PUT", f"{V1}/users/{{name}}"): {"role": "admin"},
}
QUERIES = {
    f"{V1}/jobs": ("", "?limit=1000", f"?text={NAME}", f"?user=uid-{ADA}"),
    f"{V1}/jobs/{{job}}/logs": ("", "?follow=true&rank=all"),
    f"{V1}/usage": ("", "?by=job", "?by=gpu-type", f"?by=job&user=uid-{ADA}", "?by=job&since=0"),
    f"{V1}/failures": ("", "?since=0", f"?user=uid-{ADA}"),
}


class Place(NamedTuple):
    """A manager with jobs of ada's."""

    daemon: OpenDaemon
    job: str
    ended: str
    array: str
    tokens: dict[str, str]
    """The tokens of others, by their role."""

    def over_tcp(self, token: str | None, method: str, path: str, body: object = None) -> Answer:
        url = urlsplit(self.daemon.url or "")
        connection = http.client.HTTPConnection(url.hostname or "", url.port, timeout=60)
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        return ask(connection, method, path, body, headers)

    def over_socket(self, uid: int, method: str, path: str, body: object = None) -> Answer:
        return as_user(uid, partial(_locally, self.daemon.socket, method, path, body))

    def asked(self, who: str, method: str, path: str, body: object = None) -> Answer:
        """Bob over the socket, or somebody with a token."""
        if who == "socket":
            return self.over_socket(BOB, method, path, body)
        return self.over_tcp(self.tokens[who], method, path, body)


def _locally(
    socket: str,
    method: str,
    path: str,
    body: object = None,
    headers: dict[str, str] | None = None,
) -> Answer:
    return ask(UnixConnection(socket), method, path, body, headers)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    assert os.geteuid() == 0, "These tests act as other users of this machine, and need root."
    public = Path(tempfile.mkdtemp(prefix="tm-access-", dir="/tmp"))
    public.chmod(0o755)
    work = public / FOLDER
    work.mkdir()
    (work / "train.py").write_text("")
    folder = tmp_path_factory.mktemp("access") / "state"
    often = ("--limit", "user_rate=100000", "--limit", "user_burst=100000")
    daemon = OpenDaemon(folder, public / "manager.sock", "--slots", "4", *often)
    try:
        daemon.start()
        daemon.until_active()
        yield _with_jobs(daemon, work)
    finally:
        daemon.kill()
        sweep(folder)
        shutil.rmtree(public, ignore_errors=True)


def _with_jobs(daemon: OpenDaemon, work: Path) -> Place:
    def submit(**fields: object) -> str:
        job = {"workdir": str(work), "preflight": False, "env": {"API_KEY": SECRET}, **fields}
        answer = as_user(ADA, partial(_locally, daemon.socket, "POST", f"{V1}/jobs", job))
        assert answer.status == 201, answer.text
        return str(answer.json["jobs"][0]["id"])

    said = f"echo {OUTPUT}; echo x > {FILE}; echo $API_KEY; : {ARGUMENT}"
    job = submit(command=f"{said}; sleep 600", name=NAME, snapshot=True)
    ended = submit(command=f"{said}; exit 3", name=f"{NAME}-ended", retries=0)
    array = submit(command=f"{said}; sleep 600", name=f"{NAME}-array", array=2, held=True)
    daemon.until_state(ended, "failed")
    until(lambda: SECRET in daemon.log(job), "its output")
    tokens = {
        role: daemon.call("POST", f"{V1}/tokens", {"user": "bob", "role": role})["token"]
        for role in ("viewer", "user", "operator", "admin")
    }
    return Place(daemon, job, ended, array, tokens)


# -- the table -----------------------------------------------------------------------------------------


def routes() -> set[tuple[str, str]]:
    """Every route of the application: those of its document, and those outside it."""
    app = create_app(MemoryService(Path()))  # type: ignore[arg-type]
    found = set()
    for context in iter_route_contexts(app.routes):
        for method in context.methods or ():
            if method != "HEAD":
                found.add((method, str(context.path)))
    assert {path for _, path in found} >= {"/{path:path}", "/login", ENDLESS}
    return found


ROUTES = sorted(routes())
IDS = [f"{method} {path}" for method, path in ROUTES]


def test_every_route_is_in_the_table_and_nothing_else() -> None:
    assert set(TABLE) == routes()


def test_the_document_has_no_other_paths() -> None:
    document = create_app(MemoryService(Path())).openapi()  # type: ignore[arg-type]
    stated = {
        (method.upper(), path) for path, known in document["paths"].items() for method in known
    }
    assert stated <= {(method, re.sub(r":path\}", "}", path)) for method, path in TABLE}


# -- every route -----------------------------------------------------------------------------------------


def paths_of(place: Place, path: str) -> list[str]:
    """The paths that ask a route for ada's things, by id and by name."""
    jobs = (place.job, place.ended, place.array, f"{place.array}_0", NAME, f"{NAME}_0")
    values = {
        "{job}": jobs,
        "{name:path}": ("default",),
        "{path:path}": (quote(f"/{FOLDER}", safe=""),),
        "{name}": ("eve",) if "users" in path else ("n0",),
        "{id}": ("00",),
        "{port}": ("8888",),
    }
    found = [path]
    for name, chosen in values.items():
        found = [each.replace(name, value) for each in found for value in chosen]
    return [f"{each}{query}" for each in found for query in QUERIES.get(path, ("",))]


def followed(place: Place, who: str) -> str:
    """What `GET /changes` tells, up to the end of a job that bob submits for it."""
    made = place.asked(who, "POST", f"{V1}/jobs", {"command": "true", "name": "for-bob"})
    assert made.status == 201, made.text
    job = str(made.json["jobs"][0]["id"])
    place.daemon.until_state(job, "succeeded")

    def read(connection: http.client.HTTPConnection, headers: dict[str, str]) -> str:
        connection.request("GET", ENDLESS, headers={"Last-Event-ID": "0", **headers})
        answer, lines = connection.getresponse(), ""
        while f'"what": "succeeded", "job": "{job}"' not in lines:
            lines += answer.readline().decode()
        connection.close()
        return lines

    if who == "socket":
        socket = place.daemon.socket  # found by us: Bob cannot read the data folder
        return as_user(BOB, lambda: read(UnixConnection(socket), {}))
    url = urlsplit(place.daemon.url or "")
    connection = http.client.HTTPConnection(url.hostname or "", url.port, timeout=60)
    return read(connection, place.daemon.bearer(place.tokens[who]))


@pytest.mark.parametrize("who", ["socket", "user"])
@pytest.mark.parametrize(("method", "path"), ROUTES, ids=IDS)
def test_another_user_sees_and_changes_nothing_of_my_job(
    place: Place, method: str, path: str, who: str
) -> None:
    before = place.daemon.job(place.job)
    if path == ENDLESS:
        told = followed(place, who)
        assert not [mark for mark in MARKS if mark in told]
        assert f'"job": "{place.job}"' in told, "that it started may be known"
        return
    for each in paths_of(place, path):
        answer = place.asked(who, method, each, BODIES.get((method, path)))
        assert answer.status != 500
        shown = answer.text.replace(each, "").replace(quote(NAME), "")
        if "{job}" in path:
            assert answer.status == 404, (each, answer.text)
            shown = shown.replace(f"job {each.split('/jobs/')[1].split('/')[0].split('?')[0]}", "")
        elif TABLE[method, path].need in (Need.OPERATE, Need.ADMINISTER, Need.MANAGER):
            assert answer.status == 403, (each, answer.text)
        assert not [mark for mark in MARKS if mark in shown], (each, answer.text)
    if (method, path) == ("POST", f"{V1}/jobs"):
        assert answer.status == 403, answer.text
    after = place.daemon.job(place.job)
    same = ("state", "attempt", "priority", "name", "queue", "preemptions")
    assert {key: after[key] for key in same} == {key: before[key] for key in same}


@pytest.mark.parametrize(("method", "path"), ROUTES, ids=IDS)
def test_without_a_token_there_is_nothing_over_tcp(place: Place, method: str, path: str) -> None:
    for each in paths_of(place, path):
        for token in (None, "tm_wrong"):
            answer = place.over_tcp(token, method, each, BODIES.get((method, path)))
            assert not [mark for mark in MARKS if mark in answer.text]
            if TABLE[method, path].need is not Need.OPEN:
                assert answer.status == 401, (each, answer.text)
                assert "Bearer" in answer.headers["www-authenticate"]
    if path == "/healthz":
        said = answer.json
        assert (said["notes"], said["disk_free_bytes"]) == ([], None)


@pytest.mark.parametrize(("method", "path"), [each for each in ROUTES if each[1] != ENDLESS])
def test_a_viewer_changes_nothing_and_sees_no_more_than_names(
    place: Place, method: str, path: str
) -> None:
    for each in paths_of(place, path):
        answer = place.asked("viewer", method, each, BODIES.get((method, path)))
        if method != "GET" and path not in (f"{V1}/login-links", "/login", "/logout"):
            assert answer.status == 403, (each, answer.text)
        if "{job}" in path:
            assert answer.status == 403, (each, answer.text)
        hidden = set(MARKS) - {NAME}
        assert not [mark for mark in hidden if mark in answer.text.replace(each, "")], each


def test_an_operator_sees_every_job_and_no_secret(place: Place) -> None:
    for id in (place.job, place.ended):
        shown = place.asked("operator", "GET", f"{V1}/jobs/{id}")
        assert shown.json["spec"]["env"] == {"API_KEY": "(hidden)"}
        assert SECRET not in shown.json["spec"]["command"]
    refused = place.asked("operator", "GET", f"{V1}/jobs/{place.job}/environment")
    assert refused.status == 403
    assert place.asked("operator", "GET", f"{V1}/jobs/{NAME}/story").status == 200
    assert place.asked("operator", "GET", f"{V1}/record/trace").status == 200
    events = place.asked("operator", "GET", f"{V1}/record/events")
    assert (events.status, SECRET in events.text) == (403, False)
    assert place.asked("operator", "GET", f"{V1}/tokens").status == 403


def test_an_owner_has_all_of_it(place: Place) -> None:
    own = partial(place.over_socket, ADA, "GET")
    assert own(f"{V1}/jobs/{place.job}/environment").json["environment"]["API_KEY"] == SECRET
    assert OUTPUT in own(f"{V1}/jobs/{NAME}/logs").text
    assert [row["path"] for row in own(f"{V1}/jobs/{place.job}/outputs").json["files"]] == [FILE]
    assert own(f"{V1}/caller").json["role"] == "user"


# -- what others' jobs show, and whose a name is -----------------------------------------------------------


def test_of_others_jobs_a_list_has_id_user_queue_state_and_gpus(place: Place) -> None:
    rows = {row["id"]: row for row in place.asked("user", "GET", f"{V1}/jobs").json["jobs"]}
    shown = {key: value for key, value in rows[place.job].items() if value not in (None, [], 0, "")}
    assert shown == {
        "id": place.job,
        "user": f"uid-{ADA}",
        "queue": "default",
        "state": "running",
        "gpus": 1,
    }
    names = [row["name"] for row in place.asked("viewer", "GET", f"{V1}/jobs").json["jobs"]]
    assert NAME in names


@pytest.mark.parametrize("who", ["socket", "user"])
def test_what_a_job_of_mine_waits_for_shows_nothing_of_anothers(place: Place, who: str) -> None:
    """Before it is submitted, and while it waits for the devices of that other."""
    wanted = {"command": "true", "gpus": 4}
    checked = place.asked(who, "POST", f"{V1}/jobs?dry_run=true", wanted)
    made = place.asked(who, "POST", f"{V1}/jobs", wanted)
    assert made.status == 201, made.text
    job = str(made.json["jobs"][0]["id"])
    try:
        paths = ("", "/explain", "/story", "/progress")
        told = [place.asked(who, "GET", f"{V1}/jobs/{job}{path}") for path in paths]
        assert place.job in told[1].text, "that it holds devices may be known"
        for answer in (checked, *told):
            assert answer.status == 200, answer.text
            assert not [mark for mark in MARKS if mark in answer.text], answer.text
    finally:
        place.asked(who, "POST", f"{V1}/jobs/{job}/cancel")


def test_admins_read_the_audit_log_whatever_was_asked_for(place: Place) -> None:
    """Also a path with the code that begins commands to a terminal."""

    def is_there() -> bool:
        """Failures of a user that come often are counted, one in a second is written."""
        place.over_tcp(place.tokens["user"], "POST", f"{V1}/jobs/%1b%5B31mred/cancel")
        answer = place.over_tcp(place.tokens["admin"], "GET", f"{V1}/audit")
        assert answer.status == 200, answer.text
        return f"{V1}/jobs/\x1b[31mred/cancel" in [row["path"] for row in answer.json["entries"]]

    until(is_there, "the line of a cancellation")
    assert place.over_tcp(place.tokens["operator"], "GET", f"{V1}/audit").status == 403


def test_a_name_is_looked_up_among_ones_own_jobs_first(place: Place) -> None:
    job: dict[str, Any] = {"command": "true", "name": NAME, "held": True}
    made = place.over_socket(BOB, "POST", f"{V1}/jobs", job).json["jobs"][0]["id"]
    try:
        assert place.over_socket(BOB, "GET", f"{V1}/jobs/{NAME}").json["id"] == made
        assert place.over_socket(ADA, "GET", f"{V1}/jobs/{NAME}").json["id"] == place.job
        cancelled = place.over_socket(BOB, "POST", f"{V1}/jobs/{NAME}/cancel").json
        assert (cancelled["id"], cancelled["state"]) == (made, "cancelled")
        assert place.daemon.job(place.job)["state"] == "running"
    finally:
        place.over_socket(BOB, "PATCH", f"{V1}/jobs/{made}", {"name": "other"})


def test_nobody_depends_on_a_job_that_they_may_not_see(place: Place) -> None:
    for wanted in (place.job, place.array, f"{NAME}-array"):
        job = {"command": "true", "depends_on": [wanted]}
        for dry in ("", "?dry_run=true"):
            refused = place.asked("socket", "POST", f"{V1}/jobs{dry}", job)
            assert (refused.status, "no job" in refused.text) == (404, True), refused.text


def test_an_idempotency_key_is_its_users_own(place: Place) -> None:
    job = {"command": "true", "held": True}

    def submit(uid: int) -> str:
        headers = {"Idempotency-Key": "shared"}
        act = partial(_locally, place.daemon.socket, "POST", f"{V1}/jobs", job, headers)
        return str(as_user(uid, act).json["jobs"][0]["id"])

    adas, bobs = submit(ADA), submit(BOB)
    assert adas != bobs
    assert (submit(ADA), submit(BOB)) == (adas, bobs)


def test_only_operators_submit_for_others_and_not_for_admins(place: Place) -> None:
    def submitted(who: str, user: str) -> int:
        body = {"command": "true", "held": True, "user": user}
        return place.asked(who, "POST", f"{V1}/jobs", body).status

    assert submitted("socket", f"uid-{BOB}") == 201
    assert submitted("socket", f"uid-{ADA}") == 403
    assert submitted("user", "root") == 403
    assert submitted("operator", f"uid-{ADA}") == 201
    assert submitted("operator", "root") == 403
    assert submitted("admin", "root") == 201


def test_policy_code_comes_from_the_managers_own_user_over_the_socket_only(place: Place) -> None:
    evil = {"name": "evil.py", "source": "raise ValueError('it ran')"}
    files = {"name": "gittins", "options": {"service_samples": "x"}, "files": {"x": "1"}}
    path = f"{V1}/policy"
    for body in (evil, files):
        for who in ("operator", "admin"):
            refused = place.asked(who, "PUT", path, body)
            assert (refused.status, refused.json["error"]["code"]) == (403, "not_allowed")
    own = _locally(place.daemon.socket, "PUT", path, evil)
    assert (own.status, "it ran" in own.text) == (422, True)
    by_path = {"name": "gittins", "options": {"service_samples": "/etc/shadow"}}
    read = place.asked("operator", "PUT", path, by_path)
    assert (read.status, "root:" in read.text) == (422, False)
    assert place.asked("operator", "PUT", path, {"name": "fifo"}).status == 200


def test_roles_of_unix_users_are_set_by_admins_and_count_at_once(place: Place) -> None:
    path = f"{V1}/jobs/{place.job}"
    assert place.over_socket(BOB, "GET", path).status == 404
    set_role = partial(_locally, place.daemon.socket, "PUT", f"{V1}/users/uid-{BOB}")
    try:
        assert set_role({"role": "operator"}).status == 200
        assert place.over_socket(BOB, "GET", path).status == 200
    finally:
        set_role({"role": "user"})
    assert place.over_socket(BOB, "GET", path).status == 404


def test_what_was_refused_is_in_the_audit_log_with_the_uid_that_the_kernel_says(
    place: Place,
) -> None:
    def found() -> list[dict[str, Any]]:
        """Failures of a user that come often are counted, one in a second is written."""
        place.over_socket(BOB, "POST", f"{V1}/nodes/n0/drain")
        lines = (place.daemon.folder / "audit.log").read_text().splitlines()
        said = [json.loads(line) for line in lines]
        return [each for each in said if each["path"].endswith("/n0/drain") and each["uid"] == BOB]

    (line, *_) = until(found, "the line of a refusal")
    assert (line["user"], line["role"], line["via"]) == (f"uid-{BOB}", "user", "socket")
    assert (line["verb"], line["status"]) == ("POST", 403)
    assert line["pid"] > 0
