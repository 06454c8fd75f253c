"""A manager on a Ray cluster, and jobs whose ranks write down when they live."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.live.daemons import LiveDaemon, sweep, until
from tests.ray import beats
from tests.ray.cluster import RayCluster
from tests.ray.dying import ARMED

ENDS = ("succeeded", "failed", "cancelled", "timed_out")


class Managed:
    """`daemon` has a data folder below `folder`."""

    def __init__(self, cluster: RayCluster, folder: Path, fence: str) -> None:
        self.cluster = cluster
        self.beats = folder / "beats"
        self.beats.mkdir()
        words = ("--engine", "ray", "--address", cluster.address, "--fence", fence)
        self.daemon = LiveDaemon(folder / "data", *words)
        self.armed = folder / "data" / ARMED

    @classmethod
    @contextmanager
    def running(cls, cluster: RayCluster, folder: Path, fence: str) -> Iterator[Managed]:
        """At its end no process of any job is left, and each is judged by what its ranks have written."""
        site = cls(cluster, folder, fence)
        site.start()
        try:
            yield site
            site.finish(*(job for job, state in site.states().items() if state not in ENDS))
            beats.judge(site.beats)
        finally:
            site.daemon.kill()
            sweep(folder)

    def start(self) -> None:
        self.daemon.start()
        self.daemon.until_active()

    def start_dying(self, point: str) -> None:
        """One that is killed at this point of its work, once it is armed (`dying.py`)."""
        words = ["up", "--data", str(self.daemon.folder), "--port", "0", *self.daemon.arguments]
        with (self.daemon.folder / "out.txt").open("ab") as out:
            self.daemon.process = subprocess.Popen(
                [sys.executable, "-m", "tests.ray.dying", point, *words],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                start_new_session=True,
            )
        self.daemon.until_active()

    # -- jobs ----------------------------------------------------------------------------------------------

    def submit(self, gpus: int, **more: Any) -> str:
        words = [sys.executable, "-S", str(beats.PROGRAM), str(self.beats)]
        said = {"command": words, "gpus": gpus, "ranks": "gpu", "workdir": str(self.beats)}
        return self.daemon.submit(**said, **more)

    def do(self, job: str, deed: str) -> None:
        self.daemon.call("POST", f"/api/v1/jobs/{job}/{deed}", {})

    def states(self) -> dict[str, str]:
        rows = self.daemon.call("GET", "/api/v1/jobs?limit=1000")["jobs"]
        return {str(row["id"]): row["state"] for row in rows}

    def finish(self, *jobs: str) -> None:
        """They come to their end, and it is a good one."""
        for job in jobs:
            (self.beats / f"{job}.done").touch()
            if self.daemon.job(job)["state"] == "suspended":
                self.do(job, "resume")
        for job in jobs:
            self.daemon.until_state(job, "succeeded")

    def until_beats(self, job: str, ranks: int, attempt: int = 1) -> float:
        return beats.until_beats(self.beats, job, ranks, attempt)

    def until_still(self, job: str) -> None:
        beats.until_still(self.beats, job)

    def attempts(self, job: str) -> list[int]:
        return beats.attempts(self.beats, job)

    def story(self, job: str) -> str:
        return str(self.daemon.call("GET", f"/api/v1/jobs/{job}/story"))

    # -- nodes ---------------------------------------------------------------------------------------------

    def node_of(self, job: str) -> str:
        (node,) = self.daemon.job(job)["nodes"]
        return str(node)

    def node_states(self) -> dict[str, str]:
        return {
            each["name"]: each["state"]
            for each in self.daemon.call("GET", "/api/v1/nodes")["nodes"]
        }

    def until_up(self, *names: str) -> None:
        until(
            lambda: all(self.node_states().get(name) == "up" for name in names),
            f"{names} to be up",
        )

    def until_taken(self, **gpus: int) -> None:
        """What Ray has reserved on its nodes, for whomever."""
        until(lambda: self.cluster.taken() == gpus, f"Ray to have {gpus} taken")
