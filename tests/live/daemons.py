"""A real `trainmaster up` for tests: started on a free port, killed when one likes, never left behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.live.warm_start import WarmProcess

PATIENCE_S = 60.0


def until(condition: Callable[[], Any], what: str, patience_s: float = PATIENCE_S) -> Any:
    """Wait for something true, generously; the answer is what was true.

    It is asked for less and less often: what asks takes processor time from what is waited for.
    """
    end, pause_s = time.monotonic() + patience_s, 0.02
    while time.monotonic() < end:
        found = condition()
        if found:
            return found
        time.sleep(pause_s)
        pause_s = min(0.2, 1.2 * pause_s)
    raise AssertionError(f"waited {patience_s:g} s in vain: {what}")


class LiveDaemon:
    """One data folder, and the daemon that serves it now.

    `checkout` is where its code comes from, instead of the code under test: for tests of upgrades.
    """

    def __init__(self, folder: Path, *arguments: str, checkout: Path | None = None) -> None:
        self.folder = folder
        self.arguments = arguments
        self.checkout = checkout
        self.process: subprocess.Popen[bytes] | WarmProcess | None = None

    # -- its life ----------------------------------------------------------------------------------------

    def start(self) -> None:
        """Without waiting for it to be active."""
        arguments = ["up", "--data", str(self.folder), "--port", "0", *self.arguments]
        self.folder.mkdir(parents=True, exist_ok=True)
        output = self.folder / "out.txt"
        output.touch(0o600)  # the link to its page is printed where its user alone reads it
        if self.checkout is None:
            self.process = WarmProcess(arguments, output, os.environ)
            return
        with output.open("ab") as out:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "trainmaster", *arguments],
                stdout=out,
                stderr=out,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
                env=os.environ | {"PYTHONPATH": str(self.checkout / "src")},
            )

    @property
    def url(self) -> str | None:
        """Where this very process answers, once it is active or waits for its database."""
        try:
            said = json.loads((self.folder / "address").read_text())
        except (OSError, ValueError):
            return None
        return said["url"] if self.process is not None and said["pid"] == self.process.pid else None

    @property
    def socket(self) -> str:
        """Its Unix socket."""
        return str(json.loads((self.folder / "address").read_text())["socket"])

    def until_active(self) -> None:
        def is_active() -> bool:
            assert self.process is not None
            code = self.process.poll()
            assert code is None, f"it ended with {code}: {(self.folder / 'out.txt').read_text()}"
            return self.url is not None and self.health()["role"] == "active"

        until(is_active, "the daemon to be active")

    def kill(self) -> None:
        """As the kernel does it when memory is short."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()

    def stop(self) -> int:
        assert self.process is not None
        self.process.send_signal(signal.SIGINT)
        return self.process.wait(PATIENCE_S)

    # -- speaking ----------------------------------------------------------------------------------------

    def health(self) -> dict[str, Any]:
        """What /healthz says, whatever its status."""
        try:
            found: dict[str, Any] = self.call("GET", "/healthz")
        except urllib.error.HTTPError as refusal:
            found = json.loads(refusal.read())
        return found

    def call(self, method: str, path: str, body: object = None, **headers: str) -> Any:
        """As an admin, unless the headers say otherwise."""
        request = urllib.request.Request(
            f"{self.url}{path}",
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={"content-type": "application/json", **self.bearer(), **headers},
        )
        with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
            content = answer.read()
        return json.loads(content) if content else None

    def bearer(self, token: str | None = None) -> dict[str, str]:
        """The header that shows a token: that of the data folder, where none is given."""
        place = self.folder / "admin-token"
        if token is None and not place.exists():  # an earlier version, or before its first start
            return {}
        return {"Authorization": f"Bearer {token or place.read_text().strip()}"}

    def bearer_of(self, user: str, role: str = "user") -> dict[str, str]:
        """The header of a new token for this user."""
        made = self.call("POST", "/api/v1/tokens", {"user": user, "role": role})
        return self.bearer(made["token"])

    def open(self, path: str, timeout_s: float = PATIENCE_S) -> Any:
        """The answer to GET, unread; as an admin."""
        request = urllib.request.Request(f"{self.url}{path}", headers=self.bearer())
        return urllib.request.urlopen(request, timeout=timeout_s)

    def submit(self, **fields: object) -> str:
        """A job that runs in its folder, and at once on all its devices, where nothing else is said."""
        said = {"snapshot": False, **fields}
        if self.checkout is None:  # an earlier version does not know it
            said.setdefault("preflight", False)
        answer = self.call("POST", "/api/v1/jobs", said)
        return str(answer["jobs"][0]["id"])

    def job(self, id: str) -> dict[str, Any]:
        found: dict[str, Any] = self.call("GET", f"/api/v1/jobs/{id}")
        return found

    def until_state(self, id: str, *states: str) -> dict[str, Any]:
        def reached() -> dict[str, Any] | None:
            found = self.job(id)
            return found if found["state"] in states else None

        found: dict[str, Any] = until(reached, f"job {id} to be {' or '.join(states)}")
        return found

    def log(self, id: str) -> str:
        with self.open(f"/api/v1/jobs/{id}/logs") as answer:
            return str(answer.read().decode(errors="replace"))


class OpenDaemon(LiveDaemon):
    """A manager whose socket, at this path, every user of this machine can reach."""

    def __init__(self, folder: Path, socket: Path, *arguments: str) -> None:
        super().__init__(folder, *arguments)
        self.place = str(socket)

    def start(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        words = ["up", "--data", str(self.folder), "--port", "0", *self.arguments]
        with (self.folder / "out.txt").open("ab") as out:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "tests.live.open_socket", self.place, *words],
                stdout=out,
                stderr=out,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )


@contextmanager
def live(folder: Path, *arguments: str, checkout: Path | None = None) -> Iterator[LiveDaemon]:
    """An active daemon; at the end it and everything that it started is gone."""
    daemon = LiveDaemon(folder, *arguments, checkout=checkout)
    try:
        daemon.start()
        daemon.until_active()
        yield daemon
    finally:
        daemon.kill()
        sweep(folder)


def sweep(folder: Path) -> None:
    """Kill whatever still belongs to runs under this folder."""
    for pid in of_folder(folder):
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue


def of_folder(folder: Path) -> list[int]:
    """Processes whose command line or environment names this folder: /proc's own truth."""
    mark, found = str(folder).encode(), []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdecimal() or int(entry.name) == os.getpid():
            continue
        try:
            content = (entry / "cmdline").read_bytes() + (entry / "environ").read_bytes()
            is_dead = b") Z " in (entry / "stat").read_bytes()
        except OSError:
            continue
        if mark in content and not is_dead:
            found.append(int(entry.name))
    return found
