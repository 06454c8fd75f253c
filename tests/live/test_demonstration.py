"""The demonstration: submitted once, and ended without touching anybody else's jobs."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import cast

import pytest

from tests.live.daemons import LiveDaemon, live, until
from trainmaster.cli.support.demo import MARK, demonstrate
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
    arguments = ("--slots", "4", "--demo", "--end-demo")
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
        daemon.start()
        daemon.until_active()
        found = states(daemon)
        assert found.pop("own") == "running"
        assert set(found.values()) <= {"succeeded", "cancelled"}
        assert "cancelled" in found.values()
        assert set(ids) >= {
            row["id"] for row in daemon.call("GET", "/api/v1/jobs?text=demo")["jobs"]
        }


class Refusing:
    """A daemon whose store is away."""

    @property
    def commands(self) -> Refusing:
        return self

    queries = commands

    def nodes(self) -> Sequence[NodeRow]:
        return ()

    async def submit(self, asked: Sequence[Submission], key: str) -> None:
        raise Unavailable("The disk is full.")


def test_what_could_not_be_submitted_is_not_marked_as_done(tmp_path: Path) -> None:
    with pytest.raises(Unavailable):
        asyncio.run(demonstrate(cast(Daemon, Refusing()), tmp_path))
    assert not (tmp_path / MARK).exists()
