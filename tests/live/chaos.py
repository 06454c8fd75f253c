"""The fault run: one fault after another while jobs run, and a look from outside at what became of them.

    python -m tests.live.chaos --minutes 30 [--seed N] [--store sqlite|postgresql]

What must not be: a job whose submission was answered and that did not end as it should (lost); one that ran
twice at once, ended twice, or was handed another's checkpoint (double); one that is reported as succeeded and
has not left its nonce (unrun); one that is shown as running while its processes are gone or stopped; a
process that is left when all jobs have ended; a run that a restart of the manager ended; a cancellation that
the manager could not take. For root the jobs are of three Unix users, made for the run, and what must not be
with them is in `chaos_people`. Every fault is a line of `FAULTS`; the same seed gives the same faults.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import os
import random
import resource
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg

from tests.live import postgres
from tests.live.chaos_people import MUCH_GPU_S, PYTHON, QUEUE, People, Span
from tests.live.daemons import LiveDaemon, OpenDaemon, of_folder, sweep, until
from tests.live.stage import state_of
from tests.live.unix_users import unix_user
from trainmaster.engines.local.journal import steady_ms
from trainmaster.model.launch_spec import Account

ROOT = Path(__file__).parents[2]
PROGRAM = Path(__file__).with_name("chaos_job.py")
SLOTS = 4
MOST_UNENDED = 8
FOR_EVER = 1_000_000
SILENCE_S = 5
ARGUMENTS = (
    *("--slots", str(SLOTS), "--policy", "las", "--set", "quantum_s=2"),
    *("--limit", "losses=1000", "--limit", "retry_delay=100ms", "--limit", "max_retry_delay=1s"),
    *("--limit", f"supervisor_silence={SILENCE_S}s", "--limit", f"leader_silence={SILENCE_S}s"),
    *("--limit", f"fork_server_silence={SILENCE_S}s", "--limit", "snapshot_deadline=2s"),
    *("--limit", "prerun=2s"),
)
WITHOUT_POLICY = (*ARGUMENTS[:2], *ARGUMENTS[6:])
MORE_SLOTS = 2
LOOKS = 60
ENDED = {"succeeded", "failed", "cancelled", "timed_out"}
DISK = "48m"
CLOCK = r"""
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
int clock_gettime(clockid_t which, struct timespec *found) {
    int code = syscall(SYS_clock_gettime, which, found);
    const char *name = getenv("CLOCK_OFFSET");
    long long offset = 0;
    if (which == CLOCK_REALTIME && name) {
        int file = open(name, O_RDONLY | O_CLOEXEC);
        if (file >= 0) {
            if (read(file, &offset, 8) == 8) found->tv_sec += offset;
            close(file);
        }
    }
    return code;
}
"""
POLICY = """
from trainmaster.policies.fifo import Fifo


class Gone(Fifo):
    name = "gone"
"""
TAKES_TURNS = """
from trainmaster.policies.las import Las


class Turns(Las):
    name = "turns"
"""
NEWEST_FIRST = """
    def rank(self, view, record, now):
        from trainmaster.model.plan import Rank

        return Rank(0, -record.job.submit_ms)
"""
CAME_BACK = "the manager came back"
"""How the loss of a run begins that a new manager has ended, and not a fault."""
CALM = (OSError, urllib.error.URLError, ValueError, ConnectionError)
"""What a call may raise while a fault is on."""


@dataclass
class Asked:
    """A job whose submission was answered."""

    nonce: str
    is_doomed: bool
    """It would run for ever, and is to be cancelled."""
    is_cancelled: bool = False


@dataclass
class Scene:
    """One manager with its jobs, and everything that a fault may touch."""

    folder: Path
    chance: random.Random
    store: str
    database: postgres.Server | None = None
    is_small_disk: bool = False
    pace: float = 1.0
    """How long pauses are, of what they are in a long run."""
    accounts: tuple[Account, Account, Account] | None = None
    """Unix users whose jobs these are; None: all are of the manager's own."""
    asked: dict[str, Asked] = field(default_factory=dict)
    unanswered: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    unrun: set[str] = field(default_factory=set)
    pretended: list[str] = field(default_factory=list)
    """Jobs that were shown as running while they did not."""
    let_go: list[str] = field(default_factory=list)
    """Jobs that their users had suspended and that an adoption let go on."""
    refusals: list[str] = field(default_factory=list)
    """Cancellations that the manager could not take."""
    submitted: int = 0
    emptied: int = 0
    """How often the store was exchanged for an empty one."""
    allowed_losses: int = 0
    """Runs that a restart may have ended, because their devices are gone."""

    def __post_init__(self) -> None:
        self.data = self.folder / "disk" / "data"
        self.work = self.folder / "work"
        self.work.mkdir(parents=True)
        self.program = PROGRAM
        self.clock = WallClock(self.folder)
        self.manager = self.another(*ARGUMENTS)
        self.people: People | None = None
        if self.accounts is not None:
            self.people = People(self.accounts, self.chance, self.manager)
            self.work.chmod(0o777)
            place = self.folder / "program"
            place.mkdir()
            for name in (PROGRAM.name, "second_run.py"):  # the checkout may be closed to others
                shutil.copy(PROGRAM.with_name(name), place)
            self.program = place / PROGRAM.name
            (self.work / "told.txt").touch()
            (self.work / "told.txt").chmod(0o666)

    @property
    def url(self) -> tuple[str, ...]:
        return () if self.database is None else ("--database", self.database.url(self.name))

    @property
    def name(self) -> str:
        """The database of the server that is used now."""
        return f"empty_{self.emptied}" if self.emptied else "postgres"

    def another(self, *arguments: str) -> LiveDaemon:
        return self.daemon(*arguments, *self.url)

    def daemon(self, *arguments: str) -> LiveDaemon:
        if self.accounts is None:
            return LiveDaemon(self.data, *arguments, checkout=ROOT)
        return OpenDaemon(self.data, self.folder / "manager.sock", "--run-as-user", *arguments)

    # -- the manager ---------------------------------------------------------------------------------------

    def start(self, *arguments: str) -> None:
        as_users = () if self.accounts is None else ("--run-as-user",)
        self.manager.arguments = (*as_users, *(arguments or ARGUMENTS), *self.url)
        with self.clock.for_children():
            self.manager.start()
        until(lambda: self.manager.url is not None or self.has_ended, "the manager to lead", 120)
        assert not self.has_ended, printed(self.data)

    @property
    def has_ended(self) -> bool:
        return self.manager.process is None or self.manager.process.poll() is not None

    def refused(self, *arguments: str) -> str:
        """What a manager says that must not start."""
        (self.data / "out.txt").unlink(missing_ok=True)
        other = self.daemon("--slots", str(SLOTS), *arguments)
        other.start()
        try:
            code = other.process.wait(120) if other.process is not None else None
        finally:
            other.kill()
        said = printed(self.data)
        assert code == 1, f"it was not refused: {said}"
        assert "Traceback" not in said, said
        return said

    # -- jobs ----------------------------------------------------------------------------------------------

    def rows(self) -> dict[str, dict[str, Any]]:
        page = self.manager.call("GET", "/api/v1/jobs?limit=1000")
        found = page["jobs"]
        while page.get("next"):
            page = self.manager.call("GET", f"/api/v1/jobs?limit=1000&before={page['next']}")
            found += page["jobs"]
        rows = {str(row["id"]): row for row in found}
        ran = self.ends()
        for id, row in rows.items():
            if row["state"] == "succeeded" and id in self.asked and self.asked[id].nonce not in ran:
                self.unrun.add(id)
        return rows

    def has_begun(self, nonce: str) -> bool:
        return (self.work / f"{nonce}.lock").exists()

    def ends(self) -> Counter[str]:
        return Counter(line.split()[0] for line in self.told() if line.endswith(" ends"))

    def told(self) -> list[str]:
        place = self.work / "told.txt"
        return place.read_text().splitlines() if place.exists() else []

    def submit(self) -> None:
        """One more, which may be interrupted: it is asked for again by its key."""
        self.submitted += 1
        is_doomed = self.chance.random() < 0.15
        ticks = FOR_EVER if is_doomed else self.chance.randrange(5, 60)
        nonce = f"{self.chance.getrandbits(64):016x}"
        queue = QUEUE if self.people is not None and self.chance.random() < 0.3 else "default"
        python = sys.executable if self.people is None else PYTHON
        job = {
            "name": f"chaos-{self.submitted}",
            "command": [python, "-S", str(self.program), str(ticks), str(self.work), nonce],
            "workdir": str(self.work),
            "queue": queue,
            "gpus": 2 if self.chance.random() < 0.4 and queue != QUEUE else 1,
            "retries": 0,
            "grace_period": "3s",
            "stays_in_memory": self.chance.random() < 0.7,
        }
        self.unanswered.append((nonce, job))
        self.answer()

    def answer(self) -> None:
        """Ask for what was not answered yet."""
        for nonce, job in [*self.unanswered]:
            id = self.post(nonce, job)
            if id is not None:
                self.asked[id] = Asked(nonce, str(FOR_EVER) in job["command"])
            self.unanswered.remove((nonce, job))

    def post(self, nonce: str, job: dict[str, Any]) -> str | None:
        """The id of the job; None if its user may not have more."""
        if self.people is not None:
            return self.people.submit(nonce, job)
        key = {"Idempotency-Key": nonce}
        (answer,) = self.manager.call("POST", "/api/v1/jobs", job, **key)["jobs"]
        return str(answer["id"])

    def cancel(self, id: str) -> None:
        """Whatever else does not work, a job can be ended."""
        try:
            self.manager.call("POST", f"/api/v1/jobs/{id}/cancel")
            self.asked[id].is_cancelled = True
        except urllib.error.HTTPError as error:
            if error.code not in {404, 409}:
                self.refusals.append(f"cancel {id}: {error.code} {error.read().decode()}")

    def cancel_a_running_one(self) -> None:
        """One of those that would run for ever."""
        rows = self.rows()
        for id in [id for id, asked in self.asked.items() if asked.nonce and asked.is_doomed]:
            if id in rows and rows[id]["state"] == "running" and not self.asked[id].is_cancelled:
                self.cancel(id)
                return

    def act(self) -> None:
        """What users do: submit, cancel, suspend, resume."""
        rows = self.rows()
        unended = [id for id, row in rows.items() if row["state"] not in ENDED]
        self.answer()
        if self.people is not None:
            self.people.live(rows)
        while len(unended) + self.chance.randrange(3) < MOST_UNENDED:
            self.submit()
            unended.append("")
        for id in filter(None, unended):
            asked = self.asked.get(id)
            if asked is not None and asked.is_doomed and self.chance.random() < 0.3:
                self.cancel(id)
            elif self.chance.random() < 0.15:
                self.ask(id, self.chance.choice(("suspend?force=true", "resume", "resume")))

    def ask(self, id: str, deed: str) -> None:
        """Something that may come too late."""
        with contextlib.suppress(urllib.error.HTTPError):
            self.manager.call("POST", f"/api/v1/jobs/{id}/{deed}")

    @contextmanager
    def exchanging(self) -> Iterator[None]:
        """The store is exchanged in here: every job can start before it, and the rules are set again."""
        if self.people is not None:
            self.people.lift()
        yield
        if self.people is not None:
            self.people.touched |= set(self.people.owners)
            self.people.manager = self.manager
            self.people.begin()
        for id, asked in self.asked.items():  # what was cancelled since then is not known
            if asked.is_cancelled:
                self.cancel(id)

    def supervisors(self) -> list[int]:
        return sorted(of_folder_by_lock(self.data / "runs"))

    def programs(self) -> list[int]:
        return [pid for pid in of_folder(self.work) if str(self.program) in command_of(pid)]

    def fork_server(self) -> list[int]:
        assert self.manager.process is not None
        return [
            pid for pid in children(self.manager.process.pid) if "fork_server" in command_of(pid)
        ]

    def pause(self, least: float = 0.5, most: float = 3.0) -> None:
        time.sleep(self.pace * self.chance.uniform(least, most))


# -- faults ------------------------------------------------------------------------------------------------


def manager_killed(scene: Scene) -> None:
    """With submissions under way."""
    killer = threading.Timer(scene.chance.uniform(0.0, 1.0), scene.manager.kill)
    killer.start()
    try:
        with contextlib.suppress(*CALM):
            for _ in range(5):
                scene.submit()
    finally:
        killer.join()
    scene.start()


def manager_stopped(scene: Scene) -> None:
    assert scene.manager.process is not None
    with stopped(scene.manager.process.pid):
        scene.pause()


def manager_ended(scene: Scene) -> None:
    scene.manager.stop()
    scene.pause()
    scene.start()


def supervisor_killed(scene: Scene) -> None:
    for pid in one_of(scene, scene.supervisors):
        signal_to(pid, signal.SIGKILL)


def supervisor_stopped(scene: Scene) -> None:
    for pid in one_of(scene, scene.supervisors):
        with stopped(pid):
            scene.pause()


def supervisor_hangs(scene: Scene) -> None:
    """For good: the manager notices it, and the job starts again."""
    for pid in one_of(scene, scene.supervisors):
        signal_to(pid, signal.SIGSTOP)
        until(lambda pid=pid: not exists(pid), f"supervisor {pid} to be replaced", 120)


def program_stopped(scene: Scene) -> None:
    for pid in one_of(scene, scene.programs):
        with stopped(pid):
            scene.pause()


def fork_server_killed(scene: Scene) -> None:
    for pid in one_of(scene, scene.fork_server):
        signal_to(pid, signal.SIGKILL)
    scene.submit()


def fork_server_stopped(scene: Scene) -> None:
    for pid in one_of(scene, scene.fork_server):
        with stopped(pid):
            scene.submit()
            scene.pause()


def folder_hangs(scene: Scene) -> None:
    """A submission from a folder in which Git waits for ever holds nobody else up."""
    place = scene.folder / f"hangs-{scene.chance.getrandbits(32):x}"
    subprocess.run(["git", "init", "-q", str(place)], check=True)
    os.mkfifo(place / ".gitignore")
    job: dict[str, Any] = {"command": "true", "workdir": str(place), "snapshot": True}
    job |= {"name": "hangs", "queue": "default", "gpus": 1}
    if scene.accounts is not None:
        subprocess.run(["chown", "-R", scene.accounts[0].name, str(place)], check=True)

    def ask(nonce: str) -> None:
        with contextlib.suppress(*CALM):
            id = scene.post(nonce, job)
            if id is not None:
                scene.asked[id] = Asked("", True)

    nonces = [f"{3 * scene.chance.getrandbits(32):x}" for _ in range(6)]  # of the first user
    callers = [threading.Thread(target=ask, args=(nonce,), daemon=True) for nonce in nonces]
    for caller in callers:
        caller.start()
    scene.rows()
    scene.submit()
    for caller in callers:
        caller.join(120)


def store_exchanged(scene: Scene) -> None:
    """For an older copy, with jobs that it does not know: refused, then adopted."""
    with scene.exchanging():
        scene.answer()
        copy = scene.folder / "older.db"
        with sqlite3.connect(scene.data / "trainmaster.db") as source, sqlite3.connect(copy) as to:
            source.backup(to)
        source.close()
        to.close()
        before = set(scene.asked)
        scene.submit()
        scene.submit()
        for id in set(scene.asked) - before:  # a job that was not started is in no folder
            until(lambda id=id: started(scene, id), f"job {id} to start", 180)
        scene.manager.kill()
        for path in scene.data.glob("trainmaster.db*"):
            path.unlink()
        shutil.copy(copy, scene.data / "trainmaster.db")
        said = scene.refused()
        assert "--adopt" in said, said
        scene.start(*ARGUMENTS, "--adopt")


def store_emptied(scene: Scene) -> None:
    """For an empty one, with frozen runs and jobs that users suspended: refused, then adopted."""
    with scene.exchanging():
        scene.answer()
        until(
            lambda: all_started(scene), "every job to have started", 180
        )  # others are in no folder
        running = [id for id, row in scene.rows().items() if row["state"] == "running"]
        for id in scene.chance.sample(running, min(2, len(running))):
            scene.ask(id, "suspend?force=true")
        scene.pause(1, 3)
        before = suspended_by_users(scene)
        scene.manager.kill()
        if scene.database is None:
            for path in scene.data.glob("trainmaster.db*"):
                path.unlink()
            shutil.rmtree(scene.data / "backups", ignore_errors=True)
        else:
            scene.emptied += 1
            with psycopg.connect(scene.database.url("postgres"), autocommit=True) as connection:
                connection.execute(f"CREATE DATABASE {scene.name}".encode())
        said = scene.refused(*scene.url)
        assert "--adopt" in said, said
        scene.start(*ARGUMENTS, "--adopt")
        scene.let_go += [f"{id}: {story(scene, id)}" for id in before - suspended_by_users(scene)]


def suspended_by_users(scene: Scene) -> set[str]:
    rows = scene.rows().items()
    return {id for id, row in rows if (row["state"], row["suspended_by"]) == ("suspended", "user")}


def all_started(scene: Scene) -> bool:
    """Whether every job that has not ended has a run; those that are held are let go."""
    waiting = [
        row for row in scene.rows().values() if row["state"] not in ENDED and not row["attempt"]
    ]
    for row in waiting:
        scene.ask(str(row["id"]), "resume")
    return not waiting


def store_missing(scene: Scene) -> None:
    """Moved away, as if it was not needed: refused until it is back."""
    scene.answer()
    scene.manager.stop()
    away = scene.folder / "away"
    away.mkdir(exist_ok=True)
    for path in scene.data.glob("trainmaster.db*"):
        shutil.move(path, away / path.name)
    if any((scene.data / "runs").glob("[0-9]*")):
        said = scene.refused()
        assert "--adopt" in said, said
        assert not (scene.data / "trainmaster.db").exists()
    for path in scene.data.glob("trainmaster.db*"):
        path.unlink()
    for path in away.glob("trainmaster.db*"):
        shutil.move(path, scene.data / path.name)
    scene.start()


def second_manager(scene: Scene) -> None:
    """On the same folder with another store."""
    said = scene.refused("--database", f"sqlite:///{scene.folder}/other.db")
    assert scene.manager.process is not None
    assert f"process {scene.manager.process.pid}" in said, said


def standby_leads(scene: Scene) -> None:
    """The leader is killed, or hangs, while another one stands by."""
    assert scene.manager.process is not None
    standby, hangs = scene.another(*ARGUMENTS), scene.chance.random() < 0.5
    standby.start()
    until(lambda: "standby" in printed(scene.data) or standby.url, "it to stand by", 120)
    former = scene.manager
    signal_to(former.process.pid, signal.SIGSTOP if hangs else signal.SIGKILL)
    scene.manager = standby
    until(lambda: standby.url is not None, "the standby to lead", 120)
    former.kill()
    if scene.people is not None:
        scene.people.manager = standby


def clock_set_back(scene: Scene) -> None:
    scene.clock.set_by(-3600)
    scene.submit()
    scene.pause(2, 5)
    scene.clock.set_by(0)


def descriptors_exhausted(scene: Scene) -> None:
    assert scene.manager.process is not None
    pid = scene.manager.process.pid
    before = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    used = len(os.listdir(f"/proc/{pid}/fd"))
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (used + 1, before[1]))
    try:
        with contextlib.suppress(*CALM):
            scene.submit()
        scene.pause()
    finally:
        resource.prlimit(pid, resource.RLIMIT_NOFILE, before)


def policy_file_gone(scene: Scene) -> None:
    """The manager starts without the file of its policy."""
    file = scene.folder / "gone.py"
    file.write_text(POLICY)
    scene.manager.stop()
    scene.start(*WITHOUT_POLICY, "--policy", str(file))
    scene.submit()
    file.unlink()
    scene.manager.kill()
    scene.start(*WITHOUT_POLICY)
    scene.pause()
    scene.manager.stop()
    scene.start()


def policy_file_changed(scene: Scene) -> None:
    """The manager is killed, and comes back with a policy file that decides otherwise."""
    file = scene.folder / "turns.py"
    file.write_text(TAKES_TURNS)
    arguments = (*WITHOUT_POLICY, "--policy", str(file), "--set", "quantum_s=2")
    scene.manager.stop()
    scene.start(*arguments)
    scene.act()
    scene.pause(2, 5)
    file.write_text(TAKES_TURNS + NEWEST_FIRST)
    scene.manager.kill()
    scene.start(*(WITHOUT_POLICY if scene.chance.random() < 0.3 else arguments))
    scene.act()
    scene.pause(2, 5)
    scene.manager.kill()
    scene.start()


def other_slots(scene: Scene) -> None:
    """The manager is killed, and comes back with more slots; then with fewer, and with as many again."""
    scene.manager.kill()
    scene.start("--slots", str(SLOTS + MORE_SLOTS), *ARGUMENTS[2:])
    scene.act()
    scene.pause(2, 4)
    scene.manager.kill()
    scene.allowed_losses += MORE_SLOTS
    scene.start(*ARGUMENTS, "--force")
    scene.pause(1, 2)
    scene.manager.kill()
    scene.start()


def disk_full(scene: Scene) -> None:
    """Nothing can be written; a running job can be cancelled nevertheless."""
    junk = scene.data.parent / "junk"
    before = Counter[tuple[str, str, int, str]]()
    if scene.people is not None:
        before = scene.people.answered.copy()
    try:
        with contextlib.suppress(OSError), junk.open("wb", buffering=0) as file:
            while True:
                file.write(b"\0" * (1 << 16))
        with contextlib.suppress(*CALM):
            scene.submit()
        scene.cancel_a_running_one()
        if scene.chance.random() < 0.5:
            scene.manager.kill()
            if scene.people is not None:  # lines that wait for room end with it
                scene.people.answered = before
        scene.pause()
    finally:
        junk.unlink()
    if scene.has_ended:
        scene.start()


def store_locked(scene: Scene) -> None:
    other = sqlite3.connect(scene.data / "trainmaster.db", isolation_level=None, timeout=60)
    other.execute("BEGIN EXCLUSIVE")
    with contextlib.suppress(*CALM):
        scene.submit()
    scene.cancel_a_running_one()
    scene.pause()
    other.rollback()
    other.close()


def database_away(scene: Scene) -> None:
    assert scene.database is not None
    scene.database.stop()
    with contextlib.suppress(*CALM):
        scene.submit()
    if scene.chance.random() < 0.3:
        scene.manager.kill()
    scene.pause()
    scene.database.start()
    if scene.has_ended:
        scene.start()


def backup_restored(scene: Scene) -> None:
    """With jobs that it does not know, and tokens that were revoked since."""
    made = scene.folder / "made.tar.gz"
    made.unlink(missing_ok=True)
    scene.answer()
    with scene.exchanging():
        command("backup", "--data", str(scene.data), "--to", str(made))
        before = set(scene.asked)
        scene.submit()
        scene.submit()
        for id in set(scene.asked) - before:  # a job that was not started is in no folder
            until(lambda id=id: started(scene, id), f"job {id} to start", 180)
        scene.manager.stop()
        command("restore", str(made), "--data", str(scene.data), *scene.url, "--replace")
        scene.start()
    for path in scene.data.glob("*.replaced-*"):
        path.unlink()


def token_revoked(scene: Scene) -> None:
    """The manager is killed as soon as it has answered: the token is of no use afterwards."""
    people = people_of(scene)
    account = scene.chance.choice(people.accounts)
    people.revoke(account)
    scene.manager.kill()
    scene.start()
    people.snoop(scene.rows())
    people.renew(account)


def role_taken(scene: Scene) -> None:
    """An operator is a plain user, for a time with a restart in it."""
    people = people_of(scene)
    path = f"/users/{people.cleo.name}"
    assert people.admin("PUT", path, {"role": "user"}).status == 200
    if scene.chance.random() < 0.5:
        scene.manager.kill()
        scene.start()
    for id, row in scene.rows().items():
        if row["user"] != people.cleo.name:
            for verb in ("cancel", "suspend"):
                said = people.by_socket(people.cleo, "POST", f"/jobs/{id}/{verb}", {})
                people.expect_refusal(people.cleo.name, "POST", f"{id}/{verb}", said)
            break
    said = people.by_socket(people.cleo, "POST", "/nodes/n0/drain", {})
    people.expect_refusal(people.cleo.name, "POST", "/nodes/n0/drain", said)
    assert people.admin("PUT", path, {"role": "operator"}).status == 200


def maintenance_begins(scene: Scene) -> None:
    """Runs are suspended, and none starts until it is over; the manager may come back in it."""
    people = people_of(scene)
    number = reserved(people, places=["all"], reason="chaos", force=True)  # also what cannot save
    until(lambda: not are_running(scene), "every run to be suspended", 180)
    begin_ms = steady_ms()
    scene.submit()
    if scene.chance.random() < 0.5:
        scene.manager.kill()
        scene.start()
    scene.pause(2, 4)
    people.maintenance.append(Span(begin_ms, steady_ms()))
    unreserve(people, number)


def devices_reserved(scene: Scene) -> None:
    """One device is for one user only."""
    people = people_of(scene)
    until(lambda: not are_running(scene) or paused_all(scene), "every run to be suspended", 180)
    number = reserved(people, devices=1, user=people.ada.name)
    begin_ms = steady_ms()
    for id in scene.rows():
        scene.ask(id, "resume")
    scene.act()
    if scene.chance.random() < 0.5:
        scene.manager.kill()
        scene.start()
    scene.pause(2, 4)
    people.reserved.append((people.ada.name, Span(begin_ms, steady_ms())))
    unreserve(people, number)


def budget_used_up(scene: Scene) -> None:
    """Runs of its queue are suspended, and go on when there is more."""
    people = people_of(scene)
    people.budget_gpu_s = max(1, int(people.used_ratio() * people.budget_gpu_s))
    people.bind()
    if scene.chance.random() < 0.5:
        scene.manager.kill()
        scene.start()
    scene.pause(2, 4)
    if people.used_ratio() >= 1:
        try:
            until(lambda: not are_running(scene, QUEUE), "the runs of the queue to be suspended")
        except AssertionError as late:
            people.over.append(f"the budget of {QUEUE} is used up: {late}")
    people.raise_budget()


def people_of(scene: Scene) -> People:
    assert scene.people is not None
    return scene.people


def are_running(scene: Scene, queue: str | None = None) -> list[str]:
    return [
        id
        for id, row in scene.rows().items()
        if (row["state"] == "running" or row["transition"]) and queue in (None, row["queue"])
    ]


def paused_all(scene: Scene) -> bool:
    """Ask for everything that runs to be suspended."""
    for id in are_running(scene):
        scene.ask(id, "suspend?force=true")
    return False


def reserved(people: People, **terms: object) -> int:
    said = people.admin("POST", "/reservations", {"begin_s": time.time() - 1, "for": "4h", **terms})
    assert said.status in {200, 201}, said.text
    return int(said.json["number"])


def unreserve(people: People, number: int) -> None:
    assert people.admin("DELETE", f"/reservations/{number}").status in {200, 204}


def command(*words: str) -> None:
    """A command of the machine's administrator."""
    found = subprocess.run(
        [sys.executable, "-m", "trainmaster", *words],
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": str(ROOT / "src")},
    )
    assert not found.returncode, found.stderr + found.stdout


Needs = Callable[[Scene], bool]


def always(_scene: Scene) -> bool:
    return True


def on_sqlite(scene: Scene) -> bool:
    return scene.database is None


def on_postgresql(scene: Scene) -> bool:
    return scene.database is not None


def with_people(scene: Scene) -> bool:
    return scene.people is not None


FAULTS: dict[str, tuple[Callable[[Scene], None], Needs]] = {
    "the manager is killed": (manager_killed, always),
    "the manager is ended and started": (manager_ended, always),
    "the manager is stopped and continued": (manager_stopped, always),
    "a supervisor is killed": (supervisor_killed, always),
    "a supervisor is stopped and continued": (supervisor_stopped, always),
    "a supervisor hangs": (supervisor_hangs, always),
    "a program is stopped and continued": (program_stopped, always),
    "the fork server is killed": (fork_server_killed, always),
    "the fork server is stopped and continued": (fork_server_stopped, always),
    "a folder hangs": (folder_hangs, always),
    "the store is exchanged for an older one": (store_exchanged, on_sqlite),
    "the store is exchanged for an empty one": (store_emptied, always),
    "the store is moved away": (store_missing, on_sqlite),
    "a second manager comes with another store": (second_manager, always),
    "a standby takes over": (standby_leads, always),
    "the clock is set back": (clock_set_back, lambda scene: scene.clock.is_there),
    "descriptors are exhausted": (descriptors_exhausted, always),
    "the policy's file is gone": (policy_file_gone, always),
    "the policy's file is changed": (policy_file_changed, always),
    "the devices are changed": (other_slots, always),
    "the disk is full": (disk_full, lambda scene: scene.is_small_disk),
    "the store is locked": (store_locked, on_sqlite),
    "the database is away": (database_away, on_postgresql),
    "a backup is restored": (backup_restored, always),
    "a token is revoked as the manager is killed": (token_revoked, with_people),
    "a role is taken away": (role_taken, with_people),
    "maintenance begins": (maintenance_begins, with_people),
    "devices are reserved": (devices_reserved, with_people),
    "a budget is used up": (budget_used_up, with_people),
}
"""What is done, and where it can be done."""


# -- the run -----------------------------------------------------------------------------------------------


def fault_run(
    scene: Scene, seconds: float, most: float, say: Callable[[str], None]
) -> Counter[str]:
    """Each kind once in random order, and then again, until the time is over or there were enough."""
    until_s, done = time.monotonic() + seconds, Counter[str]()
    kinds = [name for name, (_, needs) in FAULTS.items() if needs(scene)]
    waiting: list[str] = []
    scene.start()
    if scene.people is not None:
        scene.people.begin()
    while time.monotonic() < until_s and done.total() < most:
        if not waiting:
            waiting = scene.chance.sample(kinds, len(kinds))
        name = waiting.pop()
        scene.act()
        scene.pause(0.1, 1.0)
        began = time.monotonic()
        FAULTS[name][0](scene)
        settle(scene)
        done[name] += 1
        say(f"{name} ({time.monotonic() - began:.1f} s)")
    finish(scene)
    return done


def settle(scene: Scene) -> None:
    """After a fault: the manager answers, and what was not answered is asked for again."""

    def answers() -> bool:
        if scene.has_ended:
            raise AssertionError(f"the manager has ended: {printed(scene.data)}")
        try:
            scene.answer()
            return bool(scene.rows() is not None)
        except CALM:
            return False

    until(answers, "the manager to answer", 120)
    bad = pretended(scene)
    for _ in range(LOOKS):  # a report may be under way
        if bad:
            time.sleep(0.5)
            bad &= pretended(scene)
    scene.pretended += [f"{id} is shown as running: {story(scene, id)[-600:]}" for id in bad]


def pretended(scene: Scene) -> set[str]:
    """Jobs that are shown as running and whose processes are gone or stopped."""
    rows = [row for row in scene.rows().values() if row["state"] == "running"]
    found = set()
    for row in rows:
        with contextlib.suppress(*CALM):
            job = scene.manager.job(str(row["id"]))
            states = {state_of(pid) for pid in job["pids"]} or {""}
            if job["state"] == "running" and not job["transition"] and states & {"", "T", "Z"}:
                found.add(str(row["id"]))
    return found


def finish(scene: Scene) -> None:
    """Let everything come to its end."""
    if scene.people is not None:
        scene.people.budget_gpu_s = MUCH_GPU_S
        scene.people.bind()

    def unended() -> list[dict[str, Any]]:
        found = [row for row in scene.rows().values() if row["state"] not in ENDED]
        for row in found:
            asked = scene.asked.get(str(row["id"]))
            if asked is None or asked.is_doomed:
                with contextlib.suppress(*CALM):
                    scene.manager.call("POST", f"/api/v1/jobs/{row['id']}/cancel")
            elif row["state"] == "suspended" or row["reason"]:
                with contextlib.suppress(*CALM):
                    scene.manager.call("POST", f"/api/v1/jobs/{row['id']}/resume")
        return found

    try:
        until(lambda: not unended(), "all jobs to end", 300)
    except AssertionError as late:
        raise AssertionError(f"{late}: {json.dumps(unended(), indent=1)}") from late
    with contextlib.suppress(AssertionError):
        until(lambda: not scene.programs(), "their processes to be gone", 30)


@dataclass(frozen=True)
class Verdict:
    jobs: int
    lost: list[str]
    double: list[str]
    unrun: list[str]
    timeless: list[str]
    """Jobs that succeeded before they started, or in no time."""
    pretended: list[str]
    left: list[str]
    ended: list[str]
    """Runs that a restart of the manager ended, more than had lost their devices."""
    let_go: list[str]
    refusals: list[str]
    unallowed: list[str]
    """Seen or done by a user who may not."""
    over: list[str]
    """Started over a limit or a budget, in maintenance or on reserved devices."""
    charged: list[str]
    unaudited: list[str]
    uncharged: int
    """Jobs whose charge was not looked at: their store was exchanged, or an end is not in a journal."""

    @property
    def findings(self) -> list[str]:
        return [line for found in self._by_kind.values() for line in found]

    def __str__(self) -> str:
        counts = ", ".join(f"{kind} {len(found)}" for kind, found in self._by_kind.items())
        return f"{self.jobs} jobs ({self.uncharged} not compared with their charges): {counts}"

    @property
    def _by_kind(self) -> dict[str, list[str]]:
        return {
            "lost": self.lost,
            "double": self.double,
            "succeeded without having run": self.unrun,
            "wrong times": self.timeless,
            "shown as running": self.pretended,
            "processes left": self.left,
            "ended by a restart": self.ended,
            "let go by an adoption": self.let_go,
            "cancellations refused": self.refusals,
            "seen or done by others": self.unallowed,
            "over a limit or budget": self.over,
            "charged wrongly": self.charged,
            "audit lines missing": self.unaudited,
        }


def judge(scene: Scene) -> Verdict:
    rows, ends, people = scene.rows(), scene.ends(), scene.people
    lost = []
    for id, asked in scene.asked.items():
        due = "cancelled" if asked.is_doomed else "succeeded"
        state = rows[id]["state"] if id in rows else "not there"
        if state == "not there" and asked.is_cancelled and not scene.has_begun(asked.nonce):
            continue  # cancelled while it waited, before the store was emptied: in no folder
        if asked.nonce and state != due:
            lost.append(f"{id} is {state}: {story(scene, id)[-600:]}")
    double = [line for line in scene.told() if "TWICE" in line or "FOREIGN" in line]
    double += [f"{nonce} ended {count} times" for nonce, count in ends.items() if count > 1]
    timeless = [
        f"{id} ran {row['run_s']} s from {row['start_s']} to {row['finish_s']}"
        for id, row in rows.items()
        if row["state"] == "succeeded" and not (row["run_s"] and row["start_s"] <= row["finish_s"])
    ]
    ended = [
        f"{id}: {each['detail']}"
        for id in scene.asked
        for each in told_of(scene, id)
        if each["what"] == "lost" and str(each["detail"].get("why", "")).startswith(CAME_BACK)
    ]
    return Verdict(
        jobs=len(scene.asked),
        lost=lost,
        double=double,
        unrun=sorted(scene.unrun),
        timeless=timeless,
        pretended=scene.pretended,
        left=[f"process {pid}: {command_of(pid)}" for pid in scene.programs()],
        ended=ended if len(ended) > scene.allowed_losses else [],
        let_go=scene.let_go,
        refusals=scene.refusals + doubly_answered(scene, rows),
        unallowed=[] if people is None else people.unallowed,
        over=[] if people is None else people.over_limits(scene.data, SLOTS),
        charged=[] if people is None else people.charged_wrongly(scene.data),
        unaudited=[] if people is None else people.missing(scene.data),
        uncharged=0 if people is None else people.uncompared(scene.data),
    )


def doubly_answered(scene: Scene, rows: dict[str, dict[str, Any]]) -> list[str]:
    """Jobs that were refused for a limit and are there."""
    refused = set() if scene.people is None else scene.people.refused
    return [
        f"{id} was refused and is there" for id, row in rows.items() if row.get("name") in refused
    ]


def story(scene: Scene, id: str) -> str:
    return json.dumps(told_of(scene, id))


def told_of(scene: Scene, id: str) -> list[dict[str, Any]]:
    with contextlib.suppress(*CALM):
        found: list[dict[str, Any]] = scene.manager.call("GET", f"/api/v1/jobs/{id}/story")["story"]
        return found
    return []


def perform(
    folder: Path,
    store: str,
    seed: int,
    seconds: float,
    most: float = math.inf,
    pace: float = 1.0,
) -> Verdict:
    """One fault run in an empty folder, after which nothing of it is left."""

    def say(line: str) -> None:
        print(f"[{store} {seed}] {line}", flush=True)

    with contextlib.ExitStack() as stack:
        server = stack.enter_context(postgres.server()) if store == "postgresql" else None
        is_small = stack.enter_context(small_disk(folder / "disk"))
        accounts = stack.enter_context(three_users(folder)) if os.geteuid() == 0 else None
        scene = Scene(folder, random.Random(seed), store, server, is_small, pace, accounts)
        try:
            done = fault_run(scene, seconds, most, say)
            verdict = judge(scene)
        finally:
            scene.manager.kill()
            sweep(folder)
    for name, count in sorted(done.items()):
        say(f"{count:4} x {name}")
    for line in verdict.findings:
        say(line)
    say(str(verdict))
    return verdict


# -- the machine -------------------------------------------------------------------------------------------


@contextmanager
def three_users(folder: Path) -> Iterator[tuple[Account, Account, Account]]:
    homes = folder / "homes"
    homes.mkdir()
    folder.chmod(0o711)
    with unix_user(homes) as ada, unix_user(homes) as bob, unix_user(homes) as cleo:
        yield ada, bob, cleo


@contextmanager
def small_disk(folder: Path) -> Iterator[bool]:
    """A disk that can be filled; a plain folder where none can be mounted."""
    folder.mkdir(parents=True)
    mount = ["mount", "-t", "tmpfs", "-o", f"size={DISK},mode=755", "tmpfs", str(folder)]
    is_small = (
        bool(shutil.which("mount")) and not subprocess.run(mount, capture_output=True).returncode
    )
    try:
        yield is_small
    finally:
        if is_small:
            subprocess.run(["umount", "--lazy", str(folder)], check=True)


class WallClock:
    """A wall clock for the manager and its supervisors that can be set, where there is a C compiler."""

    def __init__(self, folder: Path) -> None:
        self._offset, self._library = folder / "offset", folder / "clock.so"
        self.set_by(0)
        (folder / "clock.c").write_text(CLOCK)
        build = ["cc", "-shared", "-fPIC", "-o", str(self._library), str(folder / "clock.c")]
        self.is_there = bool(shutil.which("cc")) and not subprocess.run(build).returncode

    def set_by(self, seconds: int) -> None:
        self._offset.write_bytes(seconds.to_bytes(8, sys.byteorder, signed=True))

    @contextmanager
    def for_children(self) -> Iterator[None]:
        """What is started in here has this clock."""
        if not self.is_there:
            yield
            return
        os.environ.update(LD_PRELOAD=str(self._library), CLOCK_OFFSET=str(self._offset))
        try:
            yield
        finally:
            del os.environ["LD_PRELOAD"], os.environ["CLOCK_OFFSET"]


@contextmanager
def stopped(pid: int) -> Iterator[None]:
    signal_to(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        signal_to(pid, signal.SIGCONT)


def signal_to(pid: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


def one_of(scene: Scene, find: Callable[[], list[int]]) -> list[int]:
    """One of these processes, as soon as there is one."""
    if scene.manager.process is not None and not find():
        scene.act()
    return [scene.chance.choice(until(find, f"{find.__name__} to be there", 120))]


def exists(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


def command_of(pid: int) -> str:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    return ""


def children(pid: int) -> list[int]:
    with contextlib.suppress(OSError):
        return [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return []


def of_folder_by_lock(runs: Path) -> list[int]:
    """Supervisors of runs in this folder, by the locks that they hold."""
    inodes = {str(lock.stat().st_ino) for lock in runs.glob("*/*/lock")}
    rows = map(str.split, Path("/proc/locks").read_text().splitlines())
    pids = {int(row[4]) for row in rows if row[1] == "FLOCK" and row[5].split(":")[2] in inodes}
    return [pid for pid in pids if "fork_server" in command_of(pid)]


def started(scene: Scene, id: str) -> bool:
    return bool(scene.manager.job(id)["attempt"]) and any(
        (scene.data / "runs" / id).glob("*/journal.jsonl")
    )


def printed(data: Path) -> str:
    with contextlib.suppress(OSError):
        return (data / "out.txt").read_text()
    return ""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--store", choices=("sqlite", "postgresql"))
    asked = parser.parse_args()
    if asked.store is None:  # both at once, each in a process of its own
        stated = [sys.executable, "-m", "tests.live.chaos", "--minutes", str(asked.minutes)]
        both = [
            subprocess.Popen([*stated, "--store", store, "--seed", str(asked.seed + n)])
            for n, store in enumerate(("sqlite", "postgresql"))
        ]
        sys.exit(max(each.wait() for each in both))
    folder = Path(tempfile.mkdtemp(prefix="tm-chaos-"))
    print(f"[{asked.store} {asked.seed}] {asked.minutes:g} minutes in {folder}", flush=True)
    verdict = perform(folder, asked.store, asked.seed, asked.minutes * 60)
    if not verdict.findings:
        shutil.rmtree(folder, ignore_errors=True)
    sys.exit(bool(verdict.findings))


if __name__ == "__main__":
    main()
