"""A slot that fails every job is set aside, stays so over a restart, and comes back by one command."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.live.daemons import LiveDaemon, live, until

pytestmark = pytest.mark.live

PROGRAM = """
import os, signal
if os.environ["TRAINMASTER_DEVICES"].endswith(":0") and os.path.exists("broken"):
    {death}
"""
DEATHS = (
    "os._exit(11)",
    "os.kill(os.getpid(), signal.SIGSEGV)",
    "raise RuntimeError('CUDA error: uncorrectable ECC error encountered')",
)


def states(daemon: LiveDaemon) -> dict[str, bool]:
    """Whether each device is set aside."""
    (node,) = daemon.call("GET", "/api/v1/nodes")["nodes"]
    devices = ((each["name"].partition(":")[2], each["set_aside"]) for each in node["devices"])
    return {number: aside is not None for number, aside in devices}


def unblock(daemon: LiveDaemon, place: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "trainmaster", "node", "unblock", place],
        env={**os.environ, "TRAINMASTER_DATA": str(daemon.folder)},
        text=True,
        capture_output=True,
        timeout=120,
    )


def test_a_slot_that_fails_every_job_is_set_aside_and_brought_back(tmp_path: Path) -> None:
    code = tmp_path / "code"
    code.mkdir()
    (code / "broken").touch()

    def job(program: str) -> str:
        death = DEATHS[len(program) % len(DEATHS)]
        (code / f"{program}.py").write_text(PROGRAM.format(death=death))
        command = [sys.executable, f"{program}.py"]
        return daemon.submit(command=command, name=program, workdir=str(code), retries=0)

    with live(tmp_path / "data", "--slots", "2", "--policy", "fifo") as daemon:
        first = [job("one"), job("two"), job("three")]
        ends = [daemon.until_state(id, "failed", "succeeded")["state"] for id in first]
        while not states(daemon)["0"]:  # the first ones went to both slots at once
            ends.append(daemon.until_state(job(f"more-{'x' * len(ends)}"), "failed", "succeeded"))
            assert len(ends) < 12, daemon.call("GET", "/api/v1/nodes")
        daemon.until_state(job("after"), "succeeded")

        def tested() -> tuple[str, str] | None:
            (node,) = daemon.call("GET", "/api/v1/nodes")["nodes"]
            device = node["devices"][0]
            name, why = device["name"], device["set_aside"]["why"]
            return (name, why) if "self-test" in why else None

        name, why = until(tested, "the self-test after trouble")
        assert why.endswith("GFLOP/s.")
        assert "failed there one after another" in why
        assert any(why in note for note in daemon.call("GET", "/api/v1/status")["notes"])
        with daemon.open("/metrics") as answer:
            assert f'device_set_aside{{device="{name}"' in answer.read().decode()
        waiting = daemon.submit(command="true", gpus=2, workdir=str(code))
        assert "1 is set aside" in daemon.job(waiting)["reason"]["sentence"]
        told = daemon.call("GET", f"/api/v1/jobs/{waiting}/explain")
        back = f"`trainmaster node unblock {name}` brings {name} back."
        assert f"{name} is set aside: {why} {back}" in told["remarks"]
        assert told["forecast"]["basis"] == f"it would not start while {name} is set aside."

        daemon.kill()
        daemon.start()
        daemon.until_active()
        assert states(daemon) == {"0": True, "1": False}

        (code / "broken").unlink()
        back = unblock(daemon, name)
        assert (back.returncode, back.stdout) == (0, f"{name} is used again.\n")
        assert states(daemon) == {"0": False, "1": False}
        daemon.until_state(waiting, "succeeded")
        again = unblock(daemon, name)
        assert again.returncode == 1
        assert f"{name} is not set aside" in again.stderr
