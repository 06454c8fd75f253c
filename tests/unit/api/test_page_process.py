"""The process of the pages: how soon it is started again, and what it may take."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import time
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace

import pytest

from trainmaster.api import page_process
from trainmaster.api.page_process import PageProcess, PagesAway
from trainmaster.api.web import own_log


class Clock:
    def __init__(self) -> None:
        self.now_s = 1000.0


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(page_process, "time", SimpleNamespace(monotonic=lambda: clock.now_s))
    return clock


def started(command: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(["sh", "-c", command], stdin=subprocess.PIPE, start_new_session=True)


def wait_for_death(pages: PageProcess) -> None:
    life = pages._life
    assert life is not None
    while life.died_s is None:
        time.sleep(0.001)


def test_a_process_that_dies_each_time_is_started_more_and_more_seldom(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, clock: Clock
) -> None:
    pages = PageProcess(tmp_path)
    monkeypatch.setattr(pages, "_start", lambda: started("exit 3"))
    began_s: list[float] = []
    said: set[str] = set()
    try:
        while len(began_s) < 9:
            try:
                pages._start_if_due()
            except PagesAway as away:
                said.add(str(away))
                clock.now_s += 1
            else:
                began_s.append(clock.now_s)
                wait_for_death(pages)
    finally:
        pages.end()
    assert len(said) == 1
    assert "has ended with 3" in said.pop()
    pauses = [late - early for early, late in pairwise(began_s)]
    assert pauses == [1, 2, 4, 8, 16, 32, 60, 60]


def test_a_process_that_lived_long_is_started_again_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, clock: Clock
) -> None:
    pages = PageProcess(tmp_path)
    monkeypatch.setattr(pages, "_start", lambda: started("exec sleep 100"))
    try:
        pages._start_if_due()
        first = pages.pid
        clock.now_s += 31
        pages.end_stuck(None)
        pages.end_stuck(first and first + 1)
        assert pages.pid == first
        pages.end_stuck(first)
        wait_for_death(pages)
        assert pages.pid is None
        pages._start_if_due()
        assert pages.pid not in {None, first}
    finally:
        pages.end()


def test_what_it_prints_has_a_bound_while_it_lives(tmp_path: Path) -> None:
    log = tmp_path / "pages.log"
    out = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        os.write(out, b"x" * own_log.LARGEST)
        own_log.bound(log)
        os.write(out, b"y")
        own_log.bound(log)
        os.write(out, b"z")
    finally:
        os.close(out)
    assert log.read_bytes() == b"z"
    first = tmp_path / "pages.log.1"
    assert first.stat().st_size == own_log.LARGEST + 1
    assert first.stat().st_mode & 0o777 == 0o600
    own_log.bound(tmp_path / "none")


def test_it_serves_pages_within_the_memory_that_it_may_have(tmp_path: Path) -> None:
    place, log = tmp_path / "p", tmp_path / "log"
    with log.open("wb") as out:
        process = subprocess.Popen(
            [
                *(sys.executable, "-P", "-m", "trainmaster.api.web"),
                *("--manager", str(tmp_path / "m"), "--socket", str(place), "--log", str(log)),
            ],
            stdin=subprocess.PIPE,
            stdout=out,
            stderr=out,
            start_new_session=True,
        )
    try:
        while not place.exists():
            assert process.poll() is None, log.read_text()
            time.sleep(0.02)
        soft, hard = resource.prlimit(process.pid, resource.RLIMIT_AS)
        assert soft == hard == 4 << 30
        mapped = int(Path(f"/proc/{process.pid}/statm").read_text().split()[0])
        assert mapped * resource.getpagesize() < 2 << 30
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
