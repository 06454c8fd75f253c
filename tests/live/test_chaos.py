"""A short fault run with a fixed seed on each store; `make chaos` is the long one."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.live import chaos
from tests.live.chaos import FAULTS, PROGRAM, Asked, Scene, judge, perform, pretended
from tests.live.daemons import until
from tests.live.postgres import Unavailable

pytestmark = pytest.mark.live
SECONDS, FAULTS_EACH = 60.0, 4
PACE = 0.3
"""Pauses are shorter than those of the long run."""


@pytest.mark.slow
@pytest.mark.parametrize(("store", "seed"), [("sqlite", 11), ("postgresql", 12)])
def test_no_job_is_lost_or_doubled_or_made_up(store: str, seed: int, tmp_path: Path) -> None:
    try:
        verdict = perform(tmp_path, store, seed, SECONDS, FAULTS_EACH, PACE)
    except Unavailable as error:
        pytest.skip(f"PostgreSQL cannot be started here: {error}")
    assert verdict.jobs > 0
    assert not verdict.findings


def test_every_fault_is_said_in_words() -> None:
    assert len(FAULTS) == len({fault for fault, _ in FAULTS.values()})


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
