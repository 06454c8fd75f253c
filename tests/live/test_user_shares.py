"""What one Unix user does to a manager for everybody leaves turns and room for another one, and for root."""

from __future__ import annotations

import json
import re
import socket
from collections.abc import Iterator
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.live.daemons import LiveDaemon, until
from tests.live.unix_users import AsUser, as_user, asked, shared_folder, system_manager, unix_user
from trainmaster.api.audit_log import CHANGES
from trainmaster.api.local_socket import SYSTEM
from trainmaster.api.sessions import MOST
from trainmaster.model.launch_spec import Account

pytestmark = pytest.mark.live

LIMITS = {
    "archive_silence": "10m",
    "snapshot_deadline": "10m",
    "user_rate": "10000",
    "user_burst": "100000",
    "body_deadline": "10m",
    "bodies_bytes": "48MiB",
    "forwards": "4",
    "user_followers": "3",
}
OUTPUT_BYTES = 24 << 20


@dataclass(frozen=True)
class Cluster:
    manager: LiveDaemon
    ada: Account
    bob: Account
    eve: Account

    @property
    def pid(self) -> int:
        assert self.manager.process is not None
        return self.manager.process.pid


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    stated = [word for each in LIMITS.items() for word in ("--limit", "=".join(each))]
    with (
        shared_folder() as base,
        unix_user(base) as ada,
        unix_user(base) as bob,
        unix_user(base) as eve,
        system_manager(base / "state", "--slots", "2", *stated) as manager,
    ):
        yield Cluster(manager, ada, bob, eve)


def folder_of(account: Account, name: str, script: str) -> str:
    """A folder of the user's, filled by this shell script of its own."""
    folder = Path(account.home, name)
    done = as_user(account, f"mkdir {folder} && cd {folder} && {script}")
    assert done.returncode == 0, done.stderr
    return str(folder)


def submitted(account: Account, workdir: str, **fields: object) -> str:
    body = {"workdir": workdir, "snapshot": True, "preflight": False, **fields}
    status, said = asked(SYSTEM, account, "POST", "/api/v1/jobs", body)
    assert status == 201, said
    return str(said["jobs"][0]["id"])


def with_output(cluster: Cluster, account: Account) -> str:
    """A job that has written a file into its copy."""
    folder = folder_of(account, "writes", "touch train.sh")
    job = submitted(account, folder, command=f"head -c {OUTPUT_BYTES} /dev/urandom > out.bin")
    cluster.manager.until_state(job, "succeeded")
    return job


class Archive(AsUser):
    """An archive of outputs that is asked for, and read only when one likes."""

    def __init__(self, account: Account, job: str) -> None:
        super().__init__(SYSTEM, account)
        self.request("GET", f"/api/v1/jobs/{job}/outputs/archive")

    def connect(self) -> None:
        super().connect()
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)

    def size(self) -> int:
        with suppress(OSError):
            return len(self.getresponse().read())
        return 0


def archivers(cluster: Cluster) -> list[psutil.Process]:
    """The processes that make archives now."""
    found = []
    for each in psutil.Process(cluster.pid).children():
        with suppress(psutil.Error):
            if "trainmaster.daemon.outputs" in each.cmdline():
                found.append(each)
    return found


def test_archives_that_one_user_does_not_read_hold_up_nobody_else(cluster: Cluster) -> None:
    of_ada, of_bob = (with_output(cluster, each) for each in (cluster.ada, cluster.bob))
    unread = [Archive(cluster.ada, of_ada) for _ in range(4)]
    try:
        until(lambda: archivers(cluster), "an archive to be made")
        with closing(Archive(cluster.bob, of_bob)) as archive:
            assert archive.size() > OUTPUT_BYTES
        assert archivers(cluster), "those of ada are still there"
    finally:
        for each in unread:
            each.close()
    until(lambda: not archivers(cluster), "archives that nobody waits for any more to be ended")


def slow_body(account: Account | None, size: int) -> AsUser:
    """A submission whose body is there but for its last byte."""
    line = AsUser(SYSTEM, account)
    line.putrequest("POST", "/api/v1/jobs?dry_run=true")
    line.putheader("Content-Type", "application/json")
    line.putheader("Content-Length", str(size))
    line.endheaders()
    with suppress(ConnectionError):  # it may be refused before it is all there
        line.send(b" " * (size - 1))
    return line


def test_bodies_of_one_user_leave_room_for_those_of_others(cluster: Cluster) -> None:
    body = {"command": f"echo {'x' * 60_000}"}
    with ExitStack() as slow:
        slow.enter_context(closing(slow_body(cluster.ada, 31 << 20)))
        answer = slow.enter_context(closing(slow_body(cluster.ada, 2 << 20))).getresponse()
        assert answer.status == 429
        said = json.loads(answer.read())["error"]
        assert said["code"] == "over_user_limit"
        assert "(the limit user_bodies_bytes)" in said["sentence"]
        for account in (cluster.bob, None):
            assert asked(SYSTEM, account, "POST", "/api/v1/jobs?dry_run=true", body)[0] == 200


def new_link(line: AsUser) -> str:
    """Where the page opens for whoever asks on this line."""
    line.request("POST", "/api/v1/login-links")
    answer = line.getresponse()
    said = json.loads(answer.read())
    assert answer.status == 200, said
    return f"/login{said['url'].partition('/login')[2]}"


def opened(cluster: Cluster, path: str, cookie: str = "") -> tuple[int, str]:
    """The status of a page, and the cookie that it sets."""
    assert cluster.manager.url is not None
    with closing(HTTPConnection(cluster.manager.url.partition("//")[2], timeout=60)) as page:
        page.request("GET", path, headers={"Cookie": cookie})
        answer = page.getresponse()
        answer.read()
        return answer.status, (answer.headers["set-cookie"] or "").split(";")[0]


def test_links_and_sessions_of_one_user_log_nobody_else_out(cluster: Cluster) -> None:
    with (
        closing(AsUser(SYSTEM, cluster.ada)) as ada,
        closing(AsUser(SYSTEM, cluster.bob)) as bob,
    ):
        unused, (status, cookie) = new_link(bob), opened(cluster, new_link(bob))
        assert (status, opened(cluster, "/api/v1/caller", cookie)[0]) == (303, 200)
        for _ in range(MOST + 1):
            new_link(ada)
            assert opened(cluster, new_link(ada))[0] == 303
        assert opened(cluster, "/api/v1/caller", cookie)[0] == 200
        assert opened(cluster, unused)[0] == 303


def hanging(account: Account, name: str) -> str:
    """Git waits for ever for the other end of this pipe, as for a file server that is gone."""
    return folder_of(account, name, "touch train.sh && git init -q && mkfifo .gitignore")


def processes_of(cluster: Cluster, account: Account) -> list[psutil.Process]:
    """Those that look at files for the manager as this user, and what they have started."""
    found = []
    for each in psutil.Process(cluster.pid).children(recursive=True):
        with suppress(psutil.Error):
            if each.uids().real == account.uid:
                found.append(each)
    return found


def test_copies_that_one_user_stops_hold_up_nobody_else(cluster: Cluster) -> None:
    with ExitStack() as waiting:
        for number in range(3):
            line = waiting.enter_context(closing(AsUser(SYSTEM, cluster.eve)))
            body = {"command": "true", "workdir": hanging(cluster.eve, f"hangs{number}")}
            line.request(
                *("POST", "/api/v1/jobs", json.dumps(body | {"snapshot": True})),
                {"Content-Type": "application/json"},
            )
        until(
            lambda: any(each.name() == "git" for each in processes_of(cluster, cluster.eve)),
            "a copy that hangs",
        )
        ours = " ".join(str(each.pid) for each in processes_of(cluster, cluster.eve))
        assert as_user(cluster.eve, f"kill -STOP {ours}").returncode == 0
        folder = folder_of(cluster.bob, "copied", "touch train.sh")
        job = submitted(cluster.bob, folder, command="true")
        cluster.manager.until_state(job, "succeeded")


def listening(account: Account, name: str) -> tuple[str, int]:
    """A job that serves pages, and its port."""
    job = submitted(
        account, folder_of(account, name, "touch page"), command="python3 -u -m http.server 0"
    )

    def port() -> re.Match[str] | None:
        status, said = asked(SYSTEM, account, "GET", f"/api/v1/jobs/{job}/logs")
        return re.search(r"port (\d+)", said.decode()) if status == 200 else None

    return job, int(until(port, "the job to listen")[1])


def forward(account: Account, job: str, port: int) -> AsUser:
    """A connection to the port, whose request has begun and not ended."""
    line = AsUser(SYSTEM, account)
    line.putrequest("POST", f"/api/v1/jobs/{job}/ports/{port}")
    line.putheader("Transfer-Encoding", "chunked")
    line.endheaders()
    return line


def test_connections_to_ports_of_one_users_jobs_leave_some_to_others(cluster: Cluster) -> None:
    of_ada, of_bob = (listening(each, "pages") for each in (cluster.ada, cluster.bob))
    with ExitStack() as forwards:
        for status in (200, 200, 200, 429):
            answer = forward(cluster.ada, *of_ada).getresponse()
            assert forwards.enter_context(closing(answer)).status == status
        answer = forward(cluster.bob, *of_bob).getresponse()
        assert forwards.enter_context(closing(answer)).status == 200
    for account, (job, _) in ((cluster.ada, of_ada), (cluster.bob, of_bob)):
        assert asked(SYSTEM, account, "POST", f"/api/v1/jobs/{job}/cancel")[0] in (200, 202)


def test_changes_of_one_user_do_not_push_out_what_others_did(cluster: Cluster) -> None:
    asked(SYSTEM, cluster.bob, "POST", "/api/v1/login-links")
    with closing(AsUser(SYSTEM, cluster.eve)) as line:
        for _ in range(CHANGES + 100):
            new_link(line)

    def entries(user: Account) -> list[dict[str, Any]]:
        path = f"/api/v1/audit?user={user.name}&limit=10000"
        found: list[dict[str, Any]] = asked(SYSTEM, None, "GET", path)[1]["entries"]
        return found

    def is_complete() -> bool:
        found = entries(cluster.eve)
        return bool(len(found) + sum(each["left_out"] for each in found) >= CHANGES + 100)

    until(is_complete, "the number of those that were left out")
    assert len(entries(cluster.eve)) < CHANGES + 100
    assert entries(cluster.bob)[-1]["path"] == "/api/v1/login-links"
    with closing(AsUser(SYSTEM, cluster.eve)) as line:
        for _ in range(20):
            new_link(line)
    assert cluster.manager.stop() == 0
    with open(cluster.manager.folder / "audit.log") as log:
        found = [said for said in map(json.loads, log) if said["user"] == cluster.eve.name]
    assert len(found) + sum(each["left_out"] for each in found) >= CHANGES + 120
