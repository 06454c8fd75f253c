"""A real PostgreSQL for tests: the one that `TRAINMASTER_TEST_POSTGRES_URL` names, or our own.

Our own is the one that the package `pgserver` carries, started here rather than by that package:
it would create a system user and change the rights of folders when tests run as root. PostgreSQL
refuses to run as root, so `nobody` runs it then.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import quote
from uuid import uuid4

import pytest

URL_VARIABLE = "TRAINMASTER_TEST_POSTGRES_URL"
NOBODY = 65534
PASSWORD = "not-a-secret"
HBA = "local all all trust\nhost all all 127.0.0.1/32 scram-sha-256\n"
PATIENCE_S = 60


class Unavailable(Exception):
    """No PostgreSQL can be started here, and why."""


class Server:
    """One PostgreSQL server in a folder of its own: it can be stopped and started again."""

    def __init__(self, binaries: Path, folder: Path) -> None:
        self.folder = folder
        self.port = _free_port()
        self._binaries = binaries
        self._process: subprocess.Popen[bytes] | None = None
        self._initialise()

    def _initialise(self) -> None:
        secret = self.folder / "password"
        secret.write_text(PASSWORD)
        self._give(secret)
        command = [self._binaries / "initdb", "-D", self.folder / "data", "-U", "postgres"]
        command += ["--encoding=utf8", "--locale=C", "--no-sync", f"--pwfile={secret}"]
        done = subprocess.run(command, capture_output=True, text=True, **self._as_user())
        if done.returncode:
            raise Unavailable(f"initdb failed: {done.stderr.strip() or done.stdout.strip()}")
        (self.folder / "data" / "pg_hba.conf").write_text(HBA)

    def _give(self, path: Path) -> None:
        if os.geteuid() == 0:
            os.chown(path, NOBODY, NOBODY)

    def _as_user(self) -> dict[str, object]:
        """How a process of the server is started."""
        place = {"cwd": self.folder, "env": {"LC_ALL": "C"}}
        if os.geteuid() != 0:
            return place
        return {**place, "user": NOBODY, "group": NOBODY, "extra_groups": []}

    def start(self) -> None:
        log = self.folder / "log"
        command = [self._binaries / "postgres", "-D", self.folder / "data", "-k", self.folder]
        command += ["-h", "127.0.0.1", "-p", str(self.port), "-c", "fsync=off"]
        command += ["-c", "max_connections=200", "-c", "shared_buffers=32MB"]
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,  # Ctrl-C is for the tests; they stop it
                **self._as_user(),
            )
        import psycopg

        end = time.monotonic() + PATIENCE_S
        while True:
            try:
                psycopg.connect(self.url("postgres"), connect_timeout=5).close()
            except psycopg.OperationalError as error:
                if self._process.poll() is not None or time.monotonic() > end:
                    self.stop()
                    raise Unavailable(f"postgres: {error}; {log.read_text()[-500:]}") from error
                time.sleep(0.05)
            else:
                return

    def stop(self) -> None:
        """End it at once, as a crash of the machine would; its data stay."""
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGQUIT)
            try:
                self._process.wait(PATIENCE_S)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        self._process = None

    def url(self, database: str) -> str:
        """By its socket, where everybody is let in."""
        return f"postgresql://postgres@/{database}?host={quote(str(self.folder))}&port={self.port}"

    def url_by_password(self, database: str, password: str = PASSWORD) -> str:
        return f"postgresql://postgres:{password}@127.0.0.1:{self.port}/{database}"


@contextmanager
def server() -> Iterator[Server]:
    """A server of one's own, gone afterwards."""
    found = find_spec("pgserver")
    if found is None or found.origin is None:
        raise Unavailable("the package pgserver is not installed")
    folder = Path(tempfile.mkdtemp(prefix="tm-pg-"))  # a short path: sockets have 107 characters
    try:
        if os.geteuid() == 0:
            os.chown(folder, NOBODY, NOBODY)
        running = Server(_reachable(Path(found.origin).parent, folder), folder)
        running.start()
        try:
            yield running
        finally:
            running.stop()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _reachable(package: Path, folder: Path) -> Path:
    """Where the binaries are for `nobody`: a checkout under /root is closed to it, so a copy is."""
    closed = [place for place in package.parents if not place.stat().st_mode & 0o001]
    if os.geteuid() != 0 or not closed:
        return package / "pginstall" / "bin"
    for name in (package.name, f"{package.name}.libs"):  # libraries are looked for beside it
        if package.with_name(name).exists():
            shutil.copytree(package.with_name(name), folder / name, symlinks=True)
    return folder / package.name / "pginstall" / "bin"


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[str]:
    """The URL of a server's database `postgres`: one server for all tests of a process."""
    named = os.environ.get(URL_VARIABLE)
    if named:
        yield named
        return
    try:
        with server() as running:
            yield running.url("postgres")
    except Unavailable as error:
        pytest.skip(f"PostgreSQL cannot be started here: {error}")


@pytest.fixture
def postgres_url(postgres_server: str) -> Iterator[str]:
    """The URL of an empty database of the test's own."""
    from sqlalchemy import create_engine, make_url, text

    admin = make_url(postgres_server).set(drivername="postgresql+psycopg")
    engine = create_engine(admin, isolation_level="AUTOCOMMIT")
    name = f"tm_{uuid4().hex}"
    try:
        with engine.connect() as connection:
            connection.execute(text(f"CREATE DATABASE {name}"))
        own = admin.set(drivername="postgresql", database=name)
        yield own.render_as_string(hide_password=False)
        with engine.connect() as connection:
            connection.execute(text(f"DROP DATABASE {name} WITH (FORCE)"))
    finally:
        engine.dispose()
