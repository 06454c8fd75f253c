"""The crash test itself: fifty jobs under a daemon that is killed again and again."""

from __future__ import annotations

import json
import random
import sys
import time
import urllib.error
from collections import Counter
from pathlib import Path
from typing import Any

from tests.live.daemons import LiveDaemon, of_folder, sweep, until

JOBS = 50
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


def fields(index: int, folder: Path) -> dict[str, object]:
    """Short and longer jobs; every third may not stay in memory; some are gangs."""
    ticks = 8 + index % 5 * 8
    return {
        "name": f"tick-{index}",
        "command": [sys.executable, "-S", str(PROGRAM), str(ticks), str(folder)],
        "workdir": str(folder),
        "gpus": 1,
        "stays_in_memory": index % 3 != 0,
        "retries": 0,
        "grace_period": "5s",
    }


def crash(folder: Path, points: int, seed: int, *database: str) -> None:
    """Kill the daemon at so many random moments; nothing is lost, nothing runs twice, all end."""
    chance = random.Random(seed)
    data, witness = folder / "data", Witness(folder)
    daemon = LiveDaemon(data, *POLICY, *database)
    submitted: list[str] = []
    try:
        for _ in range(points):
            daemon.start()
            until_killed(daemon, chance, submitted, folder, witness)
        daemon.start()
        daemon.until_active()
        while len(submitted) < JOBS:
            submitted.append(daemon.submit(**fields(len(submitted), folder)))
        let_go(daemon)
        finish(daemon, submitted, witness)
        judge(daemon, submitted, folder, witness)
    finally:
        daemon.kill()
        sweep(folder)
    until(lambda: not of_folder(folder), "every process to be gone", 10)


def until_killed(
    daemon: LiveDaemon,
    chance: random.Random,
    submitted: list[str],
    folder: Path,
    witness: Witness,
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
            act(daemon, chance, submitted, folder)
        except (OSError, urllib.error.URLError):
            continue
    daemon.kill()


def act(daemon: LiveDaemon, chance: random.Random, submitted: list[str], folder: Path) -> None:
    """Submit, suspend or resume something."""
    if len(submitted) < JOBS and chance.random() < 0.7:
        index = len(submitted)
        answer = daemon.call(
            "POST",
            "/api/v1/jobs",
            {"snapshot": False, **fields(index, folder)},
            **{"Idempotency-Key": f"tick-{index}"},
        )
        submitted.append(str(answer["jobs"][0]["id"]))
        return
    if submitted:
        id, deed = chance.choice(submitted), chance.choice(("suspend", "resume", "resume"))
        attempt(daemon, f"/api/v1/jobs/{id}/{deed}")
    time.sleep(0.02)


def attempt(daemon: LiveDaemon, path: str) -> None:
    """Ask for something that may come too late."""
    try:
        daemon.call("POST", path)
    except urllib.error.HTTPError as error:
        if error.code not in {404, 409}:
            raise AssertionError(error.read()) from error


def let_go(daemon: LiveDaemon) -> None:
    """Resume everything that was suspended by hand."""
    for row in daemon.call("GET", "/api/v1/jobs?limit=1000")["jobs"]:
        if row["state"] not in ENDED:
            attempt(daemon, f"/api/v1/jobs/{row['id']}/resume")


def finish(daemon: LiveDaemon, submitted: list[str], witness: Witness) -> None:
    def all_ended() -> bool:
        witness.look()
        rows = daemon.call("GET", "/api/v1/jobs?limit=1000")["jobs"]
        return all(row["state"] in ENDED for row in rows) and len(rows) >= len(submitted)

    until(all_ended, "all jobs to end", 120)


def judge(daemon: LiveDaemon, submitted: list[str], folder: Path, witness: Witness) -> None:
    rows = {row["id"]: row for row in daemon.call("GET", "/api/v1/jobs?limit=1000")["jobs"]}
    assert sorted(rows) == sorted(set(submitted)), "a job was lost, or there is one too many"
    assert len(set(submitted)) == JOBS
    told = (folder / "told.txt").read_text().splitlines()
    assert not [line for line in told if line.endswith("TWICE")], "a job ran twice at once"
    assert not witness.twice, f"seen twice at once in /proc: {witness.twice}"
    states = Counter(row["state"] for row in rows.values())
    assert states == {"succeeded": JOBS}, {
        i: story(daemon, i) for i, r in rows.items() if r["state"] != "succeeded"
    }
    ends = Counter(line.split()[0] for line in told if line.endswith(" ends"))
    assert ends == dict.fromkeys(rows, 1), "a job ended twice, or its end was made up"
    for id in rows:
        check_story(id, story(daemon, id))


def story(daemon: LiveDaemon, id: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = daemon.call("GET", f"/api/v1/jobs/{id}/story")["story"]
    return found


NEEDED_BEFORE = {
    "started": "launch ordered",
    "resumed": "thaw ordered",
    "resized": "resize ordered",
}


def check_story(id: str, told: list[dict[str, Any]]) -> None:
    """It begins with the submission, ends with the end, and nothing happens unordered in between."""
    whats = [each["what"] for each in told]
    context = json.dumps(told, indent=1)
    assert whats[0] == "submitted", context
    assert whats[-1] == "succeeded", context
    assert whats.count("submitted") == 1, context
    assert whats.count("succeeded") == 1, context
    for position, what in enumerate(whats):
        if what in NEEDED_BEFORE:
            assert NEEDED_BEFORE[what] in whats[:position], f"{id}: {context}"
    attempts = [each["detail"]["attempt"] for each in told if each["what"] == "launch ordered"]
    assert attempts == sorted(set(attempts)), f"{id}: an attempt was ordered twice: {context}"
