"""Tokens and the page of a real manager: made, used, revoked, opened once."""

from __future__ import annotations

import contextlib
import http.client
import json
import re
import time
from pathlib import Path
from urllib.parse import urlsplit

from tests.live.daemons import LiveDaemon, live
from tests.unix_http import Answer, UnixConnection, ask


def over_tcp(daemon: LiveDaemon, method: str, path: str, **headers: str) -> Answer:
    place = urlsplit(daemon.url or "")
    connection = http.client.HTTPConnection(place.hostname or "", place.port, timeout=60)
    return ask(connection, method, path, headers=headers)


def test_tokens_are_made_used_and_revoked(tmp_path: Path) -> None:
    with live(tmp_path / "state", "--slots", "1") as daemon:
        place = json.loads((daemon.folder / "address").read_text())["socket"]

        def local(method: str, path: str, body: object = None) -> Answer:
            return ask(UnixConnection(place), method, f"/api/v1{path}", body)

        made = local("POST", "/tokens", {"user": "ada", "role": "viewer", "expires": "1h"})
        assert made.status == 201
        token = made.json["token"]
        bearer = {"Authorization": f"Bearer {token}"}
        asked = over_tcp(daemon, "GET", "/api/v1/caller", **bearer).json
        assert (asked["user"], asked["role"], asked["via"]) == ("ada", "viewer", "token")
        assert over_tcp(daemon, "POST", "/api/v1/tokens", **bearer).status == 403
        assert token not in local("GET", "/tokens").text
        admin = (daemon.folder / "admin-token").read_text().strip()
        shown = over_tcp(daemon, "GET", "/api/v1/caller", Authorization=f"Bearer {admin}").json
        assert shown["role"] == "admin"
        assert local("DELETE", f"/tokens/{made.json['id']}").json["revoked_s"]
        refused = over_tcp(daemon, "GET", "/api/v1/caller", **bearer)
        assert (refused.status, refused.json["error"]["code"]) == (401, "unauthorized")
        assert token.encode() not in (daemon.folder / "trainmaster.db").read_bytes()
        daemon.stop()
        daemon.start()
        daemon.until_active()
        assert (daemon.folder / "admin-token").read_text().strip() == admin


def test_a_stream_ends_when_its_token_is_revoked(tmp_path: Path) -> None:
    """However its address is written: `%6f` is an `o`."""
    with live(tmp_path / "state", "--slots", "1") as daemon:
        job = daemon.submit(command=["sh", "-c", "echo line; sleep 600"], workdir=str(tmp_path))
        for path in (
            "/changes",
            f"/jobs/{job}/logs?follow=true",
            f"/jobs/{job}/logs?foll%6fw=true",
        ):
            made = daemon.call("POST", "/api/v1/tokens", {"user": "ada", "role": "operator"})
            place = urlsplit(daemon.url or "")
            connection = http.client.HTTPConnection(place.hostname or "", place.port, timeout=60)
            connection.request("GET", f"/api/v1{path}", headers=daemon.bearer(made["token"]))
            stream = connection.getresponse()
            assert stream.status == 200
            daemon.call("DELETE", f"/api/v1/tokens/{made['id']}")
            with contextlib.suppress(http.client.IncompleteRead):
                until_its_end(stream)
            connection.close()


def until_its_end(stream: http.client.HTTPResponse) -> None:
    """Of a stream that would go on for ever, with something every 15 s."""
    latest = time.monotonic() + 120
    while stream.read1(4096):
        assert time.monotonic() < latest, "it goes on"


def test_the_link_that_up_prints_opens_the_page_once(tmp_path: Path) -> None:
    printed_to(tmp_path / "state", 0o600)
    with live(tmp_path / "state", "--slots", "1", "--no-page") as daemon:
        said = (daemon.folder / "out.txt").read_text()
        link = re.search(r"/login\?code=\S+", said)
        assert link is not None, said
        opened = over_tcp(daemon, "GET", link[0])
        assert (opened.status, opened.headers["location"]) == (303, "/")
        cookie = opened.headers["set-cookie"]
        assert "HttpOnly" in cookie
        assert "SameSite=strict" in cookie
        session = {"Cookie": cookie.partition(";")[0]}
        page = over_tcp(daemon, "GET", "/", **session)
        assert (page.status, "--no-page" in page.text) == (404, True)
        assert over_tcp(daemon, "GET", "/api/v1/caller", **session).json["via"] == "link"
        assert over_tcp(daemon, "POST", "/api/v1/login-links", **session).status == 403
        again = over_tcp(daemon, "GET", link[0])
        assert (again.status, "used" in again.text) == (401, True)


def test_up_prints_no_link_where_others_read_it(tmp_path: Path) -> None:
    """In systemd's journal everybody of some groups reads it, and is an admin by it."""
    printed_to(tmp_path / "state", 0o644)
    with live(tmp_path / "state", "--slots", "1") as daemon:
        said = (daemon.folder / "out.txt").read_text()
        assert "code=" not in said
        assert "`trainmaster token link` prints a link" in said


def printed_to(folder: Path, mode: int) -> None:
    """A file for what the manager prints, readable by these."""
    folder.mkdir()
    (folder / "out.txt").touch()
    (folder / "out.txt").chmod(mode)
