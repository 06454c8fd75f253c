"""Messages of a real manager: to a mail server and to webhooks on this machine, also over a crash."""

from __future__ import annotations

import json
import socket
import socketserver
import threading
import urllib.error
from collections.abc import Iterator
from contextlib import closing, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.live.daemons import live, until

pytestmark = pytest.mark.live


class Mailbox(socketserver.StreamRequestHandler):
    """As much of SMTP as a client needs to hand over a mail."""

    def handle(self) -> None:
        answers = {"DATA": "354 go on", "QUIT": "221 bye", "EHLO": "250 here"}
        self._say("220 ready")
        while line := self.rfile.readline().decode():
            verb = line.split()[0].upper() if line.split() else ""
            self._say(answers.get(verb, "250 ok"))
            if verb == "QUIT":
                return
            if verb == "DATA":
                mail = []
                while (each := self.rfile.readline().decode()) not in (".\r\n", ""):
                    mail.append(each)
                self.server.mails.append("".join(mail))  # type: ignore[attr-defined]
                self._say("250 taken")

    def _say(self, line: str) -> None:
        self.wfile.write(f"{line}\r\n".encode())


class Hook(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self.server.bodies.append((self.path, body))  # type: ignore[attr-defined]
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def serving(server: Any) -> Iterator[Any]:
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()


@pytest.fixture
def mailbox() -> Iterator[Any]:
    server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), Mailbox)
    server.mails = []  # type: ignore[attr-defined]
    with serving(server) as found:
        yield found


def hooks(port: int = 0) -> Any:
    server = ThreadingHTTPServer(("127.0.0.1", port), Hook)
    server.bodies = []  # type: ignore[attr-defined]
    return server


def test_users_and_operators_are_told_once_also_over_a_crash(tmp_path: Path, mailbox: Any) -> None:
    file = tmp_path / "ours.yaml"
    port = mailbox.server_address[1]
    mail = (
        f"mail: {{host: 127.0.0.1, port: {port}, security: none}}\noperators: [ops@example.org]\n"
    )
    file.write_text(mail)
    first = hooks()
    where = first.server_address[1]
    arguments = ("--slots", "1", "--notifications", str(file), "--limit", "disk_free=1024T")
    with live(tmp_path / "data", *arguments) as daemon:
        with serving(first):
            hook = f"http://127.0.0.1:{where}/done"
            told = {"to": ["ada@example.org", hook], "on": ["started", "ended"]}
            daemon.until_state(daemon.submit(command="exit 3", retries=0, notify=told), "failed")
            until(lambda: len(first.bodies) == 2 and len(mailbox.mails) >= 3, "all messages")
        assert [body["event"] for _, body in first.bodies] == ["started", "ended"]
        assert first.bodies[1][1]["exit_code"] == 3
        subjects = [mail for mail in mailbox.mails if "To: ada@example.org" in mail]
        assert [("has failed" in mail, "has started" in mail) for mail in subjects] == [
            (False, True),
            (True, False),
        ]
        assert any("To: ops@example.org" in mail and "disk" in mail for mail in mailbox.mails)

        # Nobody answers there now: it stays, over a kill of the manager too, until somebody does.
        job = daemon.submit(command="true", notify=f"slack:http://127.0.0.1:{where}/slack")
        daemon.until_state(job, "succeeded")
        until(
            lambda: any("not be delivered" in each for each in daemon.health()["notes"]), "a note"
        )
        daemon.kill()
        mails = len(mailbox.mails)
        daemon.start()
        daemon.until_active()
        with serving(hooks(where)) as second:
            until(lambda: second.bodies, "the message")
            said = f"Job {job} (true) has succeeded"
            assert [(path, body["text"].split("\n")[0]) for path, body in second.bodies] == [
                ("/slack", said)
            ]
            until(lambda: not any("not be" in each for each in daemon.health()["notes"]), "no note")
        assert len(mailbox.mails) == mails  # nothing is told again


def test_a_server_that_does_not_answer_delays_only_messages_of_those_who_named_it(
    tmp_path: Path,
) -> None:
    """Each of them is waited for; one after another would take minutes."""
    with (
        closing(socket.create_server(("127.0.0.1", 0), backlog=64)) as silent,
        serving(hooks()) as server,
        live(tmp_path / "data", "--slots", "2") as daemon,
    ):
        eve, bob = daemon.bearer_of("eve"), daemon.bearer_of("bob")
        nowhere = f"http://127.0.0.1:{silent.getsockname()[1]}"
        job = {"snapshot": False, "preflight": False, "command": "true"}
        jobs = [job | {"notify": [f"{nowhere}/{n}/{m}" for m in range(4)]} for n in range(4)]
        ids = [
            each["id"]
            for each in daemon.call("POST", "/api/v1/jobs", {"jobs": jobs}, **eve)["jobs"]
        ]
        for id in ids:
            daemon.until_state(id, "succeeded")
        silent.accept()[0].close()  # one has been tried
        hook = f"http://127.0.0.1:{server.server_address[1]}/bob"
        daemon.call("POST", "/api/v1/jobs", job | {"notify": hook}, **bob)
        until(lambda: server.bodies, "bob's message")
        waiting = json.loads((tmp_path / "data/notifications.json").read_text())["pending"]
        assert sum(each["tries"] == 0 for each in waiting) > 4, "most of eve's were not tried yet"


def test_an_array_is_told_of_once_and_mail_without_a_server_is_refused(tmp_path: Path) -> None:
    with serving(hooks()) as server, live(tmp_path / "data", "--slots", "2") as daemon:
        hook = f"http://127.0.0.1:{server.server_address[1]}/"
        with pytest.raises(urllib.error.HTTPError) as refusal:
            daemon.submit(command="true", notify="ada@example.org")
        assert "no mail server" in json.loads(refusal.value.read())["error"]["sentence"]
        daemon.submit(command="exit $TRAINMASTER_ARRAY_INDEX", retries=0, array="0-3", notify=hook)
        until(lambda: server.bodies, "the message")
        job = daemon.submit(command="true", notify=hook)
        until(lambda: len(server.bodies) > 1, "the next one")
        bodies = [body for _, body in server.bodies]
        assert [body["event"] for body in bodies] == ["failed", "ended"]
        assert bodies[0]["counts"] == {"succeeded": 1, "failed": 3, "timed_out": 0, "cancelled": 0}
        assert bodies[1]["job"] == job
