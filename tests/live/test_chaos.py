"""A short fault run with a fixed seed on each store; `make chaos` is the long one."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.live import chaos
from tests.live.chaos import FAULTS, PROGRAM, ROOT, Asked, Scene, judge, perform, pretended
from tests.live.chaos_people import QUEUE, People, Span, Used, used
from tests.live.daemons import LiveDaemon, until
from tests.live.postgres import Unavailable
from tests.live.unix_users import shared_folder
from tests.unix_http import Answer
from trainmaster.model.launch_spec import Account

pytestmark = pytest.mark.live
SECONDS = 60.0
PACE = 0.3
"""Pauses are shorter than those of the long run."""


@pytest.mark.slow
@pytest.mark.parametrize(("store", "seed", "faults"), [("sqlite", 11, 4), ("postgresql", 12, 3)])
def test_no_job_is_lost_or_doubled_or_made_up(store: str, seed: int, faults: int) -> None:
    try:
        with shared_folder() as folder:
            verdict = perform(folder, store, seed, SECONDS, faults, PACE)
    except Unavailable as error:
        pytest.skip(f"PostgreSQL cannot be started here: {error}")
    assert verdict.jobs > 0
    assert not verdict.findings


def test_every_fault_is_said_in_words() -> None:
    assert len(FAULTS) == len({fault for fault, _ in FAULTS.values()})
    assert f"under {len(FAULTS)} kinds of fault" in (ROOT / "Makefile").read_text()


class Liar:
    """A manager that says what it is told to."""

    def __init__(self, rows: list[dict[str, Any]], story: list[dict[str, Any]]) -> None:
        self.rows, self.story = rows, story

    def call(self, _method: str, path: str) -> dict[str, Any]:
        return {"story": self.story} if path.endswith("/story") else {"jobs": self.rows}

    def job(self, id: str) -> dict[str, Any]:
        return next(row for row in self.rows if row["id"] == id)


GOOD = {"id": "1", "state": "succeeded", "run_s": 1.0, "start_s": 1.0, "finish_s": 2.0}
RUNNING = {"id": "1", "state": "running", "transition": None, "pids": [1]}


def scene(
    folder: Path, rows: list[dict[str, Any]], told: str, story: list[dict[str, Any]] | None = None
) -> Scene:
    """After a fault run in which one job was asked for."""
    found = Scene(folder, random.Random(0), "sqlite")
    found.manager = Liar(rows, story or [])  # type: ignore[assignment]
    found.asked["1"] = Asked("abc", is_doomed=False)
    (found.work / "told.txt").write_text(told)
    return found


LOST_RUN = {"what": "lost", "detail": {"why": f"{chaos.CAME_BACK} with other devices"}}
WRONG: dict[str, tuple[list[dict[str, Any]], str, list[dict[str, Any]]]] = {
    "lost": ([], "", []),
    "double": ([GOOD], "abc 1.1 ends\nabc 1.2 ends\n", []),
    "unrun": ([GOOD], "", []),
    "timeless": ([GOOD | {"run_s": 0.0}], "abc 1.1 ends\n", []),
    "ended": ([GOOD], "abc 1.1 ends\n", [LOST_RUN]),
}


@pytest.mark.parametrize("kind", WRONG)
def test_what_is_wrong_is_found(kind: str, tmp_path: Path) -> None:
    verdict = judge(scene(tmp_path, *WRONG[kind]))
    assert getattr(verdict, kind)
    assert len(verdict.findings) == 1


def test_what_is_right_is_not_blamed(tmp_path: Path) -> None:
    assert not judge(scene(tmp_path, [GOOD], "abc 1.1 ends\n")).findings


def test_only_what_was_cancelled_before_it_began_may_be_gone(tmp_path: Path) -> None:
    gone = scene(tmp_path, [], "")
    gone.asked["1"] = Asked("abc", is_doomed=True, is_cancelled=True)
    assert not judge(gone).findings
    (gone.work / "abc.lock").touch()
    assert judge(gone).lost


def test_a_job_without_a_process_does_not_run(tmp_path: Path) -> None:
    assert not pretended(scene(tmp_path / "a", [RUNNING], ""))
    assert pretended(scene(tmp_path / "b", [RUNNING | {"pids": []}], "")) == {"1"}
    with subprocess.Popen(["sleep", "60"]) as sleeps:
        try:
            told = scene(tmp_path / "c", [RUNNING | {"pids": [sleeps.pid]}], "")
            assert not pretended(told)
            with chaos.stopped(sleeps.pid):
                until(lambda: pretended(told) == {"1"}, "it to be stopped")
        finally:
            sleeps.kill()


def test_a_process_that_is_left_is_found(tmp_path: Path) -> None:
    ended = scene(tmp_path, [GOOD], "abc 1.1 ends\n")
    command = [sys.executable, "-S", str(PROGRAM), "1000000", str(ended.work), "abc"]
    with subprocess.Popen(command, env={"TRAINMASTER_CHECKPOINT_DIR": str(tmp_path)}) as program:
        try:
            until(ended.programs, "its command line to be there")
            assert [str(program.pid) in line for line in judge(ended).left] == [True]
        finally:
            program.kill()


# -- people ------------------------------------------------------------------------------------------------


def journal(data: Path, job: str, *entries: tuple[int, str]) -> None:
    """Of the first run of a job."""
    folder = data / "runs" / job / "1"
    folder.mkdir(parents=True)
    (folder / "run.json").write_text("{}")
    lines = [
        json.dumps({"n": n, "at_ms": 0, "steady_ms": at_ms, "what": what})
        for n, (at_ms, what) in enumerate(entries, 1)
    ]
    (folder / "journal.jsonl").write_text("".join(f"{line}\n" for line in lines))


def people(folder: Path) -> People:
    """Three users of whom nobody has done anything wrong, with a budget of 10 GPU-seconds."""
    ada, bob, cleo = (Account(name, 1, 1, "/", "/bin/sh") for name in ("ada", "bob", "cleo"))
    found = People((ada, bob, cleo), random.Random(0), LiveDaemon(folder))
    found.budgets.append((0, 10))
    return found


Entries = tuple[tuple[int, str], ...]
RAN: Entries = ((0, "started"), (5_000, "ended"))
LONG: Entries = ((0, "started"), (20_000, "ended"))
LATER: Entries = ((21_000, "started"), (22_000, "ended"))
OVER: dict[str, list[tuple[str, str, int, Entries]]] = {
    "3 GPUs of 2": [("ada", "default", 2, RAN), ("ada", "default", 1, RAN)],
    "2 jobs run of 1": [("bob", "default", 1, RAN), ("bob", "default", 1, RAN)],
    "2 GPUs in shared of 1": [("cleo", QUEUE, 1, RAN), ("cleo", QUEUE, 1, RAN)],
    "20.0 GPU-s of 10": [("cleo", QUEUE, 1, LONG), ("ada", QUEUE, 1, LATER)],
}


@pytest.mark.parametrize("said", OVER)
def test_a_start_over_a_limit_is_found_unless_none_was_set(said: str, tmp_path: Path) -> None:
    seen = people(tmp_path)
    for id, (user, queue, gpus, entries) in enumerate(OVER[said]):
        seen.owners[str(id)] = (user, queue, gpus)
        journal(tmp_path, str(id), *entries)
    (found,) = seen.over_limits(tmp_path, 4)
    assert said in found
    seen.unbounded.append(Span(0, 30_000))
    assert not seen.over_limits(tmp_path, 4)


def test_a_start_in_maintenance_or_on_a_reserved_device_is_found(tmp_path: Path) -> None:
    seen = people(tmp_path)
    seen.owners["0"] = ("cleo", "default", 4)
    journal(tmp_path, "0", *RAN)
    assert not seen.over_limits(tmp_path, 4)
    seen.reserved.append(("ada", Span(0, 1)))
    seen.maintenance.append(Span(0, 1))
    closed, taken = seen.over_limits(tmp_path, 4)
    assert closed.endswith("in maintenance")
    assert taken.endswith("reserved for ada")


def test_an_answer_that_is_not_in_the_audit_log_is_missed(tmp_path: Path) -> None:
    seen = people(tmp_path)
    seen.answered["POST", "/x", 201, "ada"] += 2
    line = json.dumps({"verb": "POST", "path": "/x", "status": 201, "user": "ada"})
    (tmp_path / "audit.log").write_text(f"{line}\n")
    assert len(seen.missing(tmp_path)) == 1
    (tmp_path / "audit.log.1").write_text(f"{line}\n")
    assert not seen.missing(tmp_path)
    seen.answered["POST", "/x", 201, "ada"] += 2
    other = {"verb": "POST", "path": "/y", "status": 201, "user": "ada", "left_out": 1}
    (tmp_path / "audit.log.2").write_text(json.dumps(other) + "\n")
    assert seen.missing(tmp_path) == ["1 x ('POST', '/x', 201, 'ada')"]


def test_a_charge_that_is_not_that_of_the_journals_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = people(tmp_path)
    seen.owners["0"] = ("ada", "default", 2)
    journal(tmp_path, "0", *RAN)

    def charged(gpu_s: float, user: str = "ada") -> list[str]:
        row = {"job": "0", "user": user, "queue": "default", "gpu_s": gpu_s}
        content = json.dumps({"rows": [row]}).encode()
        monkeypatch.setattr(seen, "admin", lambda *_: Answer(200, {}, content))
        return seen.charged_wrongly(tmp_path)

    assert not charged(10.0)
    assert charged(13.0)
    assert charged(7.0)
    assert charged(10.0, "bob")
    journal(tmp_path, "1", (0, "started"), (5_000, "saved"), (9_000, "lost"))
    lost = tmp_path / "runs" / "1" / "1" / "journal.jsonl"
    lost.write_text(lost.read_text().replace('"what": "lost"', '"what": "lost", "alive_ms": 1'))
    assert used(tmp_path, "1", 2) == Used(10.0, 18.0, 1)
    seen.touched.add("0")
    assert not charged(13.0)


def test_a_revoked_token_that_still_works_is_found(tmp_path: Path) -> None:
    seen = people(tmp_path)
    seen.expect_refusal("ada", "GET", "/caller", Answer(401, {}, b""))
    seen.expect_refusal("ada", "GET", "/caller", Answer(503, {}, b""))
    assert not seen.unallowed
    seen.expect_refusal("ada", "GET", "/caller", Answer(200, {}, b"{}"))
    assert seen.unallowed
