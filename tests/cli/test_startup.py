"""`trainmaster --help` is quick because nothing heavy is loaded for it: no clock, just sys.modules."""

from __future__ import annotations

import subprocess
import sys

import pytest

HEAVY = ("numpy", "matplotlib", "yaml", "scipy", "torch")

LOADED = "import sys; print(*sys.modules)"
IMPORT = f"import trainmaster.cli.main; {LOADED}"
HELP = f"""
import sys
from trainmaster.cli.main import run
sys.argv = ["trainmaster", "--help"]
try:
    run()
except SystemExit as end:
    assert not end.code, end.code
{LOADED}
"""


@pytest.mark.parametrize("program", [IMPORT, HELP], ids=["import", "help"])
def test_nothing_heavy_is_loaded(program: str) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", program], text=True, capture_output=True, timeout=60
    )
    assert ended.returncode == 0, ended.stderr
    loaded = set(ended.stdout.splitlines()[-1].split())
    assert "trainmaster.cli.main" in loaded
    assert loaded.isdisjoint(HEAVY)
