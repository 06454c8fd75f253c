"""`doctor` finds faults that are made for real, and says nothing of them where there are none."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import sqlite3
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from tests.live.daemons import live, of_folder, sweep, until
from tests.live.test_identity import pid_of
from trainmaster.cli.diagnosis.checks import Finding, Verdict, findings
from trainmaster.cli.diagnosis.gather import gather
from trainmaster.cli.main import main
from trainmaster.cli.support.own_store import store_of
from trainmaster.store import schema
from trainmaster.text.formatting import plural
from trainmaster_sdk.process_tree import stat_of

pytestmark = pytest.mark.live
EXPIRED = Path(__file__).parents[1] / "fixtures" / "tls" / "expired.pem"
NOBODY = 65534
LISTEN = """
import socket, time
listening = socket.create_server(("127.0.0.1", 0))
print(listening.getsockname()[1], flush=True)
time.sleep(600)
"""


def found_in(folder: Path) -> dict[str, Finding]:
    facts = gather(folder, store_of(folder, None, None))
    return {each.check: each for each in findings(facts)}


def is_fine(found: dict[str, Finding], check: str) -> bool:
    return check not in found or found[check].verdict is Verdict.OK


@dataclass(frozen=True)
class Stopped:
    """A data folder whose manager was stopped in good order, to be copied and harmed."""

    folder: Path
    older: Path
    """A copy of its store of an earlier moment."""
    workdir: Path
    """Where a job that waits is to run."""
    findings: dict[str, Finding] = field(default_factory=dict)
    """Of the folder as it is."""


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stopped]:
    place = tmp_path_factory.mktemp("doctor")
    made = Stopped(place / "data", place / "older.db", place / "work")
    made.workdir.mkdir()
    with live(made.folder, "--slots", "1") as manager:
        manager.until_state(manager.submit(command="true"), "succeeded")
        manager.submit(command="true", workdir=str(made.workdir), held=True)
        with closing(sqlite3.connect(made.folder / "trainmaster.db")) as store:
            store.execute("VACUUM INTO ?", (str(made.older),))
        manager.until_state(manager.submit(command="true"), "succeeded")
        to = ["--data", str(made.folder), "--to", str(place / "backup.tar.gz")]
        assert main(["backup", *to]) == 0
        assert manager.stop() == 0
    yield replace(made, findings=found_in(made.folder))
    sweep(place)


@pytest.fixture
def copy(stopped: Stopped, tmp_path: Path) -> Stopped:
    shutil.copytree(stopped.folder, tmp_path / "data", copy_function=shutil.copy2)
    return replace(stopped, folder=tmp_path / "data")


def tell_store(folder: Path, statement: str) -> None:
    with closing(sqlite3.connect(folder / "trainmaster.db")) as store:
        store.execute(statement)
        store.commit()


# -- faults ------------------------------------------------------------------------------------------------


def damage(made: Stopped) -> None:
    tell_store(made.folder, "PRAGMA wal_checkpoint(TRUNCATE)")
    with (made.folder / "trainmaster.db").open("r+b") as file:
        file.seek(4096)
        file.write(b"\xa5" * 8192)


def newer_schema(made: Stopped) -> None:
    tell_store(made.folder, f"UPDATE {schema.VERSION_TABLE} SET version_num = '9999'")


def older_store(made: Stopped) -> None:
    for part in made.folder.glob("trainmaster.db*"):
        part.unlink()
    shutil.copy(made.older, made.folder / "trainmaster.db")


def other_folder(made: Stopped) -> None:
    (made.folder / "home").write_text("of-another-store")


def no_store(made: Stopped) -> None:
    for part in made.folder.glob("trainmaster.db*"):
        part.unlink()


def readable_store(made: Stopped) -> None:
    made.folder.chmod(0o755)
    (made.folder / "trainmaster.db").chmod(0o644)


def readable_token(made: Stopped) -> None:
    (made.folder / "admin-token").chmod(0o640)


def garbled_address(made: Stopped) -> None:
    (made.folder / "address").write_text("{")


def future(made: Stopped) -> None:
    """As after the clock was set back by an hour."""
    ahead = round((time.time() + 3600) * 1000)
    tell_store(
        made.folder, f"UPDATE steps SET now_ms = {ahead} WHERE seq = (SELECT max(seq) FROM steps)"
    )


def no_workdir(made: Stopped) -> None:
    made.workdir.rmdir()


def large_log(made: Stopped) -> None:
    with (made.folder / "manager.log.1").open("wb") as file:
        file.truncate(2 << 30)


def no_backup_for_long(made: Stopped) -> None:
    said = {"at": "2020-01-01T00:00:00+00:00", "file": "/mnt/b"}
    (made.folder / "last-backup.json").write_text(json.dumps(said))


def restored_and_left(made: Stopped) -> None:
    to = ["--replace", "--data", str(made.folder)]
    assert main(["restore", str(made.folder.parent / "backup.tar.gz"), *to]) == 0


def unknown_run(made: Stopped) -> None:
    shutil.copytree(made.folder / "runs" / "1", made.folder / "runs" / "77")


def open_folder(made: Stopped) -> None:
    made.folder.chmod(0o777)


def no_folder(made: Stopped) -> None:
    shutil.rmtree(made.folder)


FAULTS: dict[Callable[[Stopped], None], tuple[str, Verdict, str]] = {
    damage: ("store-damage", Verdict.FAULT, "is damaged"),
    newer_schema: ("store-schema", Verdict.FAULT, "schema version 9999 of a newer Trainmaster"),
    older_store: ("store-of-folder", Verdict.FAULT, "is older (step"),
    other_folder: ("store-of-folder", Verdict.FAULT, "belongs to another data folder"),
    unknown_run: ("store-of-folder", Verdict.FAULT, "does not know: 77"),
    no_store: ("store", Verdict.FAULT, "is missing"),
    readable_store: ("exposed-files", Verdict.FAULT, "Other users can read trainmaster.db"),
    readable_token: ("token-file", Verdict.FAULT, "has the mode 0640"),
    garbled_address: ("address", Verdict.FAULT, "cannot be read"),
    future: ("clock", Verdict.FAULT, "was set back"),
    no_workdir: ("job-folders", Verdict.FAULT, "of job 2 is not there"),
    large_log: ("log-size", Verdict.WARNING, "2.0 GiB"),
    no_backup_for_long: ("last-backup", Verdict.WARNING, "days old"),
    restored_and_left: ("restored", Verdict.WARNING, "no manager was started since"),
    open_folder: ("data-folder", Verdict.FAULT, "Others can change the data folder"),
    no_folder: ("data-folder", Verdict.FAULT, "There is no data folder"),
}


@pytest.mark.parametrize("make", FAULTS, ids=lambda make: make.__name__)
def test_a_fault_of_the_state_is_found(copy: Stopped, make: Callable[[Stopped], None]) -> None:
    check, verdict, words = FAULTS[make]
    assert is_fine(copy.findings, check), copy.findings[check]
    shutil.copy(copy.workdir.parent / "backup.tar.gz", copy.folder.parent)
    make(copy)
    try:
        found = found_in(copy.folder)[check]
    finally:
        copy.workdir.mkdir(exist_ok=True)
    assert found.verdict is verdict, found
    assert words in found.sentence
    assert found.advice


def test_the_exit_code_says_whether_there_is_a_fault(
    copy: Stopped, capsys: pytest.CaptureFixture[str]
) -> None:
    def said(*more: str) -> tuple[int, str]:
        capsys.readouterr()
        code = main(["doctor", "--data", str(copy.folder), *more])
        return code, capsys.readouterr().out

    no_backup_for_long(copy)
    machine = [each for each in copy.findings.values() if each.verdict is Verdict.FAULT]
    code, well = said("--all")
    assert code == bool(machine), well
    assert "The database has no damage." in well
    readable_token(copy)
    code, told = said()
    assert (code, f"{plural(len(machine) + 1, 'fault')}," in told) == (1, True), told
    assert "fault    admin-token has the mode 0640" in told
    assert "warning  The last backup is" in told
    assert "The database has no damage." not in told
    code, text = said("--json")
    rows = {row["check"]: row for row in json.loads(text)}
    assert (code, rows["token-file"]["verdict"], rows["store"]["verdict"]) == (1, "fault", "ok")
    assert "Restart the manager" in rows["token-file"]["advice"]


# -- faults of processes and sockets -----------------------------------------------------------------------


def test_faults_of_a_manager_that_stands_still_and_one_that_was_killed(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with live(data, "--slots", "1") as manager:
        job = manager.submit(command="sleep 3600")
        pid_of(manager, job)
        assert manager.process is not None
        well = found_in(data)
        for check in (
            "manager-answers",
            "manager-health",
            "address",
            "stale-sockets",
            "leftover-runs",
        ):
            assert is_fine(well, check), well[check]
        assert {"manager-answers", "manager-version"} <= well.keys()

        (data / "address").rename(data / "hidden")
        unnamed = found_in(data)["address"]
        assert unnamed.verdict is Verdict.FAULT
        assert f"Process {manager.process.pid} uses the data folder" in unnamed.sentence
        (data / "hidden").rename(data / "address")

        os.kill(manager.process.pid, signal.SIGSTOP)
        try:
            still = found_in(data)["manager-answers"]
            assert still.verdict is Verdict.FAULT
            assert "does not answer on its socket" in still.sentence
        finally:
            os.kill(manager.process.pid, signal.SIGCONT)

        manager.kill()
        killed = found_in(data)
        assert killed["address"].verdict is Verdict.WARNING
        assert "has ended without a word" in killed["address"].sentence
        assert killed["stale-sockets"].verdict is Verdict.WARNING
        assert "without a manager" in killed["leftover-runs"].sentence
        assert is_fine(killed, "missing-runs")

        tell_store(data, "UPDATE jobs SET state = 'cancelled'")
        left = found_in(data)["leftover-runs"]
        assert left.verdict is Verdict.FAULT
        assert f"{job}.1" in left.sentence
        tell_store(data, "UPDATE jobs SET state = 'running'")

        sweep(data)
        until(lambda: not of_folder(data), "its processes to end")
        gone = found_in(data)
        assert is_fine(gone, "leftover-runs")
        assert f"job {job}" in gone["missing-runs"].sentence


@contextmanager
def of_nobody() -> Iterator[tuple[int, int]]:
    """A program of another user that listens: its process and its port."""
    assert os.geteuid() == 0, "This test starts a program as another user: run it as root."
    squatter = subprocess.Popen(
        ["/usr/bin/env", "python3", "-c", LISTEN],
        stdout=subprocess.PIPE,
        user=NOBODY,
        group=NOBODY,
        extra_groups=[],
        cwd="/",
    )
    try:
        assert squatter.stdout is not None
        yield squatter.pid, int(squatter.stdout.readline())
    finally:
        squatter.kill()
        squatter.wait()


def test_a_port_of_another_users_program_is_found(copy: Stopped) -> None:
    assert is_fine(copy.findings, "port")
    with of_nobody() as (pid, port):
        address = {"url": f"http://127.0.0.1:{port}", "socket": None, "pid": pid}
        (copy.folder / "address").write_text(json.dumps(address))
        found = found_in(copy.folder)["port"]
    assert found.verdict is Verdict.FAULT
    assert f"Port {port} is taken by a program of the user with the id {NOBODY}" in found.sentence


def test_a_killed_manager_that_nobody_has_waited_for_has_ended(copy: Stopped) -> None:
    """As in containers whose first process does not look after others."""
    with subprocess.Popen(["sleep", "3600"]) as killed:
        killed.kill()
        until(lambda: stat_of(killed.pid)[0] == b"Z", "it to have ended")
        address = {"url": "http://127.0.0.1:9", "socket": "/nowhere", "pid": killed.pid}
        (copy.folder / "address").write_text(json.dumps(address))
        found = found_in(copy.folder)
    assert "has ended without a word" in found["address"].sentence
    assert "manager-answers" not in found


def test_a_certificate_that_has_ended_is_found(copy: Stopped) -> None:
    assert is_fine(copy.findings, "certificate")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(EXPIRED)
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def answer() -> None:
            while True:
                try:
                    client, _ = listening.accept()
                except OSError:
                    return
                client.settimeout(5.0)
                with client:
                    try:
                        context.wrap_socket(client, server_side=True).close()
                    except OSError:
                        continue

        serving = threading.Thread(target=answer, daemon=True)
        serving.start()
        url = f"https://127.0.0.1:{listening.getsockname()[1]}"
        address = {"url": url, "socket": None, "pid": os.getpid()}
        (copy.folder / "address").write_text(json.dumps(address))
        found = found_in(copy.folder)["certificate"]
        listening.shutdown(socket.SHUT_RDWR)
    serving.join()
    assert found.verdict is Verdict.FAULT
    assert "certificate has expired" in found.sentence


def test_too_few_open_files_are_found(copy: Stopped) -> None:
    def verdict(limit: str) -> str:
        command = f"ulimit -n {limit} && exec {sys.executable} -m trainmaster doctor --json"
        done = subprocess.run(
            ["bash", "-c", f"{command} --data {copy.folder}"], capture_output=True, text=True
        )
        rows = {row["check"]: row for row in json.loads(done.stdout)}
        return str(rows["open-files"]["verdict"])

    assert verdict("8192") == "ok"
    assert verdict("256") == "fault"


def test_a_store_on_a_server_is_looked_at(tmp_path: Path, postgres_url: str) -> None:
    with live(tmp_path, "--slots", "1", "--database", postgres_url) as manager:
        manager.until_state(manager.submit(command="true"), "succeeded")
        found = found_in(tmp_path)  # the folder says which database
        checks = (
            "store",
            "store-damage",
            "store-schema",
            "store-of-folder",
            "clock",
            "manager-answers",
        )
        assert {found[each].verdict for each in checks} == {Verdict.OK}
        assert "postgresql://" in found["store"].sentence
        manager.kill()
        (tmp_path / "home").write_text("of-another-store")
        assert "another data folder" in found_in(tmp_path)["store-of-folder"].sentence


def test_a_database_that_is_away_is_a_fault(
    copy: Stopped, capsys: pytest.CaptureFixture[str]
) -> None:
    capsys.readouterr()
    away = "postgresql://nobody@127.0.0.1:1/none?connect_timeout=2"
    assert main(["doctor", "--data", str(copy.folder), "--database", away]) == 1
    assert "does not answer" in capsys.readouterr().out
