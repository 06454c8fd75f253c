"""`--help` and `simulate` start quickly because nothing heavy is loaded: no clock, just sys.modules."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

HEAVY = ("numpy", "matplotlib", "yaml", "scipy", "torch")

LOADED = "import sys; print(*sys.modules)"
IMPORT = f"import trainmaster.cli.main; {LOADED}"
COMMAND = f"""
import sys
from trainmaster.cli.main import run
sys.argv = ["trainmaster", *sys.argv[1:]]
try:
    run()
except SystemExit as end:
    assert not end.code, end.code
{LOADED}
"""


TRACE = "job_id,submit_s,gpus,duration_s\na,0,1,60\n"


def _loaded(program: str, *arguments: str) -> set[str]:
    ended = subprocess.run(
        [sys.executable, "-c", program, *arguments], text=True, capture_output=True, timeout=60
    )
    assert ended.returncode == 0, ended.stderr
    return set(ended.stdout.splitlines()[-1].split())


@pytest.mark.parametrize(
    ("program", "arguments"), [(IMPORT, ()), (COMMAND, ("--help",))], ids=["import", "help"]
)
def test_nothing_heavy_is_loaded(program: str, arguments: tuple[str, ...]) -> None:
    loaded = _loaded(program, *arguments)
    assert "trainmaster.cli.main" in loaded
    assert loaded.isdisjoint(HEAVY)


@pytest.mark.parametrize("policy", ["fifo", "optimus", "trainmaster"])
def test_a_simulation_without_fits_and_charts_loads_nothing_heavy(
    policy: str, tmp_path: Path
) -> None:
    trace = tmp_path / "trace.csv"
    trace.write_text(TRACE)
    loaded = _loaded(COMMAND, "simulate", str(trace), "--cluster", "1x4", "--policy", policy)
    assert "trainmaster.sim.driver" in loaded
    assert loaded.isdisjoint(HEAVY)
