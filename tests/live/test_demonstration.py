"""The demonstration: round after round, and ended without touching anybody else's jobs."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import cast

import pytest

from tests.live.daemons import LiveDaemon, live, until
from trainmaster.cli.support import demo
from trainmaster.cli.support.demo import MARK, play_round
from trainmaster.daemon.daemon import Daemon
from trainmaster.daemon.response_models import NodeRow
from trainmaster.daemon.service_api import Submission, Unavailable

pytestmark = pytest.mark.live


def alive(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


def states(daemon: LiveDaemon) -> dict[str, str]:
    rows = daemon.call("GET", "/api/v1/jobs?limit=100")["jobs"]
    return {row["name"]: row["state"] for row in rows}


def test_ctrl_c_ends_the_demonstrations_jobs_and_no_others(tmp_path: Path) -> None:
    arguments = ("--slots", "10", "--demo", "--end-demo")
    with live(tmp_path, *arguments) as daemon:
        until(lambda: len(daemon.call("GET", "/api/v1/jobs")["jobs"]) >= 4, "the demonstration")
        own = daemon.submit(
            name="own", command="sleep 600", workdir=str(tmp_path), priority=9, retries=0
        )
        (pid,) = daemon.until_state(own, "running")["pids"]
        assert daemon.stop() == 0
        assert alive(pid)
        ids = (tmp_path / MARK).read_text().split()
        assert own not in ids
        daemon.arguments = ("--slots", "10")
        daemon.start()
        daemon.until_active()
        found = states(daemon)
        assert found.pop("own") == "running"
        assert set(found.values()) <= {"succeeded", "cancelled"}
        assert "cancelled" in found.values()
        assert set(ids) >= {
            row["id"] for row in daemon.call("GET", "/api/v1/jobs?text=demo")["jobs"]
        }


def test_a_second_start_demonstrates_again(tmp_path: Path) -> None:
    with live(tmp_path, "--slots", "4", "--demo", "--end-demo") as daemon:
        until(lambda: len(noted(tmp_path)) >= 4, "the demonstration")
        assert daemon.stop() == 0
        before = noted(tmp_path)
        daemon.start()
        daemon.until_active()
        until(lambda: set(noted(tmp_path)) - set(before), "another round")
        assert daemon.stop() == 0


def noted(folder: Path) -> list[str]:
    return (folder / MARK).read_text().split() if (folder / MARK).exists() else []


SHORT = """
name: demo-short
command: sleep 0.3
retries: 0
"""


def test_a_new_round_begins_when_one_has_ended(tmp_path: Path) -> None:
    """By the commands that it prints, as they are printed."""
    short = tmp_path / "short.yaml"
    short.write_text(SHORT)
    code = (
        "import pathlib, trainmaster.cli.support.demo as demo, trainmaster.cli.main as cli\n"
        f"demo.JOBS, demo.BEFORE_URGENT_S = pathlib.Path({str(short)!r}), 0.1\n"
        "cli.run()"
    )
    flags = ["up", "--data", "state", "--port", "0", "--slots", "1", "--demo", "--end-demo"]
    output = tmp_path / "said"
    with output.open("wb") as out:
        shown = subprocess.Popen([sys.executable, "-c", code, *flags], cwd=tmp_path, stdout=out)
    try:
        until(lambda: len(noted(tmp_path / "state")) >= 3, "three rounds")
        printed = [line for line in output.read_text().splitlines() if line.startswith("  ")]
        (ps,) = [line for line in printed if " ps " in line]
        listed = subprocess.run(
            f"{ps} -a", shell=True, cwd=tmp_path, text=True, stdout=-1, timeout=60
        )
        assert listed.returncode == 0
        assert listed.stdout.startswith("id")
    finally:
        shown.send_signal(signal.SIGINT)
        assert shown.wait(60) == 0


def test_it_is_called_by_a_path_that_can_be_typed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / ".venv/bin/trainmaster"
    program.parent.mkdir(parents=True)
    program.touch(mode=0o755)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "executable", str(program.with_name("python")))
    assert demo.program_words() == ".venv/bin/trainmaster"
    monkeypatch.setenv("PATH", str(program.parent))
    assert demo.program_words() == "trainmaster"
    monkeypatch.chdir("/usr")
    monkeypatch.setenv("PATH", "/nowhere")
    assert demo.program_words() == str(program)


class Refusing:
    """A daemon whose store is away."""

    @property
    def queries(self) -> Refusing:
        return self

    submissions = queries

    def nodes(self) -> Sequence[NodeRow]:
        return ()

    async def submit(self, asked: Sequence[Submission], key: str) -> None:
        raise Unavailable("The disk is full.")


def test_what_could_not_be_submitted_is_not_marked_as_done(tmp_path: Path) -> None:
    with pytest.raises(Unavailable):
        asyncio.run(play_round(cast(Daemon, Refusing()), tmp_path))
    assert not (tmp_path / MARK).exists()
