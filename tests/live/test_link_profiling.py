"""`profile links` over a shaped link: what it fits against what was set. It needs root."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.live.shaped_link import shaped_link
from trainmaster.cli.support.link_profiling import read_links
from trainmaster.profiling.links import LinkMeter

pytestmark = [pytest.mark.live, pytest.mark.slow]
PATIENCE_S = 240
PORT = 29541


def measured(folder: Path, bytes_per_s: int, latency_s: float) -> dict[str, Any]:
    """What node 0 of two says."""
    with shaped_link(bytes_per_s, latency_s) as sides:
        running = [
            subprocess.Popen(
                side.command(
                    [
                        *(sys.executable, "-m", "trainmaster", "profile", "links", "--json"),
                        *("--nodes", "2", "--rank", str(rank), "--meet", f"10.231.7.1:{PORT}"),
                        *("--devices", "1", "--out", str(folder / f"{rank}.yaml")),
                    ]
                ),
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            for rank, side in enumerate(sides)
        ]
        try:
            said = [each.communicate(timeout=PATIENCE_S) for each in running]
        finally:
            for each in running:
                each.kill()
                each.wait()
    assert [each.returncode for each in running] == [0, 0], said
    assert not (folder / "1.yaml").exists(), "node 0 writes the file"
    answer: dict[str, Any] = json.loads(said[0][0])
    return answer


def test_the_bandwidth_is_that_of_the_link(tmp_path: Path) -> None:
    [link] = measured(tmp_path, 20_000_000, 0.0)["links"]
    assert link["level"] == "rack"
    assert 0.015 <= link["gb_s"] <= 0.0215, "less where the machine is busy, and never more"
    [(level, kept)] = read_links(tmp_path / "0.yaml")
    assert (level, kept.bytes_per_s) == ("rack", round(link["gb_s"] * 1e9))


def test_the_latency_of_a_hop_is_what_gloo_waits_for(tmp_path: Path) -> None:
    """A sender waits until the receiver has asked: there and back for each hop."""
    [link] = measured(tmp_path, 20_000_000, 0.020)["links"]
    assert 36_000 <= link["latency_us"] <= 60_000
    assert 0.010 <= link["gb_s"] <= 0.022


def test_processes_of_one_node_are_measured_too() -> None:
    link = LinkMeter(sys.executable, 0.2, PATIENCE_S).between_devices(2, on_gpus=False)
    assert link.bytes_per_s > 10_000_000
    assert link.latency_us >= 0
