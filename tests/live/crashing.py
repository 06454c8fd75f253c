"""The crash test itself: jobs, gangs, arrays and chains under a daemon that is killed again and again."""

from __future__ import annotations

import json
import random
import sys
import time
import urllib.error
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import uuid4

from tests.live.daemons import LiveDaemon, of_folder, sweep, until

SUBMISSIONS = 44
"""Jobs and arrays: 53 jobs in all."""
FOR_EVER = 1_000_000
PROGRAM = Path(__file__).with_name("ticking.py")
POLICY = ("--policy", "las", "--set", "quantum_s=1", "--slots", "4")
ENDED = {"succeeded", "failed", "cancelled"}


class Witness:
    """Looks at /proc for runs of one job that live at the same time."""

    def __init__(self, folder: Path) -> None:
        self._folder = str(folder).encode()
        self.twice: set[tuple[str, ...]] = set()

    def look(self) -> None:
        attempts: dict[str, set[str]] = {}
        for entry in Path("/proc").iterdir():
            if not entry.name.isdecimal():
                continue
            try:
                if str(PROGRAM).encode() not in (entry / "cmdline").read_bytes():
                    continue
                content = (entry / "environ").read_bytes()
            except OSError:
                continue
            if self._folder in content:
                said = dict(each.split(b"=", 1) for each in content.split(b"\0") if b"=" in each)
                job = said.get(b"TRAINMASTER_JOB", b"").decode()
                attempts.setdefault(job, set()).add(said.get(b"TRAINMASTER_ATTEMPT", b"").decode())
        for job, found in attempts.items():
            if len(found) > 1:
                self.twice.add((job, *sorted(found)))


@dataclass
class StopOrder:
    """What was submitted, and what else was asked for and answered."""

    folder: Path
    wholes: list[str] = field(default_factory=list)
    """By index: the id of the job, or of the array."""
    ids: dict[str, int] = field(default_factory=dict)
    """Every job that is to end, elements of arrays too, with the index that it was submitted under."""
    nonce: str = field(default_factory=lambda: uuid4().hex)
    cancelled: set[str] = field(default_factory=set)
    """Wholes of which the daemon has said that they are cancelled."""

    @property
    def uncancelled(self) -> list[str]:
        """Those that will never end by themselves."""
        doomed = (id for index, id in enumerate(self.wholes) if is_doomed(index))
        return [id for id in doomed if id not in self.cancelled]


def is_doomed(index: int) -> bool:
    """Some would tick for ever: they are cancelled."""
    return index % 10 == 9


def ticks_of(index: int) -> int:
    """Short and longer jobs."""
    return FOR_EVER if is_doomed(index) else 8 + index % 5 * 8


def fields(index: int, asked: StopOrder) -> dict[str, object]:
    """Every third is a gang, half of them with a pre-run, every fourth may not stay in memory; some are
    arrays, some wait for others."""
    found: dict[str, object] = {
        "name": f"tick-{index}",
        "command": [sys.executable, "-S", str(PROGRAM), str(ticks_of(index)), str(asked.folder)],
        "workdir": str(asked.folder),
        "gpus": 2 if index % 3 == 2 else 1,
        "ranks": "gpu",
        "stays_in_memory": index % 4 != 0,
        "preflight": index % 2 == 0,
        "preflight_steps": 8,
        "retries": 0,
        "grace_period": "5s",
        "snapshot": False,
        "env": {"NONCE": nonce_of(index, asked)},
    }
    if index % 14 == 5:
        found["array"] = "0-3%2"
    if index % 6 == 4:  # after one that succeeds, after an array, or after one that is cancelled
        when = ":any" if is_doomed(index - 1) else ""
        found["depends_on"] = [f"{asked.wholes[index - 1]}{when}"]
    return found


def nonce_of(index: int, asked: StopOrder) -> str:
    """What a job leaves when it has run to its end, and what no other job of any run of this test knows."""
    return f"{asked.nonce}-{index}"


def submit_next(daemon: LiveDaemon, asked: StopOrder) -> None:
    """The next one, once, whether or not the daemon has heard of it before it was killed."""
    index = len(asked.wholes)
    key = {"Idempotency-Key": f"tick-{index}"}
    (answer,) = daemon.call("POST", "/api/v1/jobs", fields(index, asked), **key)["jobs"]
    asked.wholes.append(str(answer["id"]))
    asked.ids.update(dict.fromkeys(answer["ids"], index))


def crash(folder: Path, points: int, seed: int, *database: str) -> None:
    """Kill the daemon at so many random moments; nothing is lost, nothing runs twice, all end."""
    chance = random.Random(seed)
    data, witness, asked = folder / "data", Witness(folder), StopOrder(folder)
    daemon = LiveDaemon(data, *POLICY, *database)
    try:
        for _ in range(points):
            daemon.start()
            until_killed(daemon, chance, asked, witness)
        daemon.start()
        daemon.until_active()
        while len(asked.wholes) < SUBMISSIONS:
            submit_next(daemon, asked)
        let_go(daemon, asked)
        finish(daemon, asked, witness)
        judge(daemon, asked, witness)
    finally:
        daemon.kill()
        sweep(folder)
    until(lambda: not of_folder(folder), "every process to be gone", 10)


def until_killed(
    daemon: LiveDaemon, chance: random.Random, asked: StopOrder, witness: Witness
) -> None:
    """Let it work for a random while, some of it with requests under way; then SIGKILL."""
    if chance.random() < 0.8:
        daemon.until_active()
    dies_at = time.monotonic() + 1.5 * chance.random()
    while time.monotonic() < dies_at:
        witness.look()
        if daemon.url is None:
            time.sleep(0.02)
            continue
        try:
            act(daemon, chance, asked)
        except (OSError, urllib.error.URLError):
            continue
    daemon.kill()


def act(daemon: LiveDaemon, chance: random.Random, asked: StopOrder) -> None:
    """Submit, suspend, resume or cancel something."""
    if len(asked.wholes) < SUBMISSIONS and chance.random() < 0.7:
        submit_next(daemon, asked)
        return
    if asked.uncancelled and chance.random() < 0.1:
        cancel(daemon, asked, chance.choice(asked.uncancelled))
    elif asked.ids:
        id, deed = chance.choice(list(asked.ids)), chance.choice(("suspend", "resume", "resume"))
        attempt(daemon, f"/api/v1/jobs/{id}/{deed}")
    time.sleep(0.02)


def cancel(daemon: LiveDaemon, asked: StopOrder, id: str) -> None:
    """Once it is answered, it is not asked for again: whatever happens, it must come to pass."""
    attempt(daemon, f"/api/v1/jobs/{id}/cancel")
    asked.cancelled.add(id)


def attempt(daemon: LiveDaemon, path: str) -> None:
    """Ask for something that may come too late."""
    try:
        daemon.call("POST", path)
    except urllib.error.HTTPError as error:
        if error.code not in {404, 409}:
            raise AssertionError(error.read()) from error


def let_go(daemon: LiveDaemon, asked: StopOrder) -> None:
    """Cancel what is left to be cancelled, and resume everything that was suspended by hand."""
    for id in asked.uncancelled:
        cancel(daemon, asked, id)
    for row in daemon.call("GET", "/api/v1/jobs?limit=1000")["jobs"]:
        if row["state"] not in ENDED:
            attempt(daemon, f"/api/v1/jobs/{row['id']}/resume")


def finish(daemon: LiveDaemon, asked: StopOrder, witness: Witness) -> None:
    def unended() -> dict[str, Any]:
        witness.look()
        rows = {row["id"]: row for row in daemon.call("GET", "/api/v1/jobs?limit=1000")["jobs"]}
        lost = dict.fromkeys(asked.ids.keys() - rows.keys(), "lost")
        return lost | {id: row for id, row in rows.items() if row["state"] not in ENDED}

    try:
        until(lambda: not unended(), "all jobs to end", 180)
    except AssertionError as late:
        left = {id: row != "lost" and (row, story(daemon, id)) for id, row in unended().items()}
        raise AssertionError(f"{late}: {json.dumps(left, indent=1)}") from late


def judge(daemon: LiveDaemon, asked: StopOrder, witness: Witness) -> None:
    rows = {row["id"]: row for row in daemon.call("GET", "/api/v1/jobs?limit=1000")["jobs"]}
    assert sorted(rows) == sorted(asked.ids), "a job was lost, or there is one too many"
    told = (asked.folder / "told.txt").read_text().splitlines()
    assert not [line for line in told if line.endswith("TWICE")], "a job ran twice at once"
    assert not witness.twice, f"seen twice at once in /proc: {witness.twice}"
    due = {id: "cancelled" if is_doomed(i) else "succeeded" for id, i in asked.ids.items()}
    assert {id: row["state"] for id, row in rows.items()} == due, {
        id: story(daemon, id) for id, row in rows.items() if row["state"] != due[id]
    }
    ends = Counter(line.split()[0] for line in told if line.endswith(" ends"))
    succeeded = [id for id, state in due.items() if state == "succeeded"]
    assert ends == dict.fromkeys(succeeded, 1), "a job ended twice, or its end was made up"
    left = set((asked.folder / "nonces.txt").read_text().splitlines())
    ran = {id for id in succeeded if f"{id} {nonce_of(asked.ids[id], asked)}" in left}
    assert ran == set(succeeded), "reported as succeeded without having run"
    for id in succeeded:
        said = (rows[id]["progress"] or {}).get("step")
        assert said == ticks_of(asked.ids[id]), f"{id}: its last report was lost: {said}"
    for id, state in due.items():
        check_story(id, story(daemon, id), state)


def story(daemon: LiveDaemon, id: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = daemon.call("GET", f"/api/v1/jobs/{id}/story")["story"]
    return found


NEEDED_BEFORE = {
    "started": "launch ordered",
    "resumed": "thaw ordered",
    "resized": "resize ordered",
}


LAST = {"succeeded": {"succeeded"}, "cancelled": {"withdrawn", "stopped"}}


def check_story(id: str, told: list[dict[str, Any]], state: str) -> None:
    """It begins with the submission, ends with the end, and nothing happens unordered in between."""
    whats = [each["what"] for each in told]
    context = f"{id}: {json.dumps(told, indent=1)}"
    assert whats[0] == "submitted", context
    assert whats.count("submitted") == 1, context
    assert whats[-1] in LAST[state], context
    assert whats.count("succeeded") == (state == "succeeded"), context
    assert ("withdrawn" in whats) == (state == "cancelled"), context
    assert not {"failed", "lost"} & set(whats), context
    for position, what in enumerate(whats):
        if what in NEEDED_BEFORE:
            assert NEEDED_BEFORE[what] in whats[:position], context
    attempts = [each["detail"]["attempt"] for each in told if each["what"] == "launch ordered"]
    assert attempts == sorted(set(attempts)), f"an attempt was ordered twice: {context}"
