"""`trainmaster top` on a real manager: what is seen, and what its keys do."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from textual.pilot import Pilot
from textual.widgets import DataTable, Static

from tests.live.daemons import LiveDaemon, live
from trainmaster.cli.top_screen.app import TopApp
from trainmaster.cli.top_screen.cluster_view import Choice
from trainmaster.client.manager_api import ManagerApi

pytestmark = pytest.mark.live
PATIENCE_S = 60.0
SCREENSHOTS = "TRAINMASTER_SCREENSHOTS"
PICTURE = Path(__file__).parents[2] / "docs/screenshots/top.svg"
FONTS = re.compile(r"@font-face \{.*?\}", re.S)
SPEAKS = ["bash", "-c", r"printf '\033]0;PWNED\007 [red]step[/] 31\n'; sleep 600"]


def screen_text(app: TopApp) -> str:
    """What stands in the terminal."""
    lines = app.screen._compositor.render_strips()
    return "\n".join("".join(segment.text for segment in strip) for strip in lines)


async def until(pilot: Pilot[None], holds: Callable[[], object], what: str) -> None:
    end = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < end, f"waited in vain: {what}\n{screen_text(pilot.app)}"  # type: ignore[arg-type]
        await pilot.pause(0.05)


def submit(daemon: LiveDaemon) -> None:
    daemon.submit(name="resnet[red]", command=SPEAKS, gpus=2)
    daemon.submit(name="bert", command=["sleep", "600"])
    daemon.submit(name="gpt2", command=["sleep", "600"], gpus=4)
    daemon.submit(name="sweep", command=["sleep", "600"], array="0-9%1", held=True)
    daemon.until_state("1", "running")
    daemon.until_state("2", "running")


async def use(daemon: LiveDaemon) -> None:
    app = TopApp(ManagerApi(None, daemon.folder), Choice())
    async with app.run_test(size=(80, 24)) as pilot:

        def shows(*words: str) -> Callable[[], bool]:
            return lambda: all(word in screen_text(app) for word in words)

        await until(pilot, shows("3 of 4 CPU slots in use", "AAB.", "resnet[red]"), "the grid")
        await until(pilot, shows("4_[0-9]", "q Quit"), "the list and the keys")
        keep_picture(app)
        table = app.query_one("#jobs", DataTable)
        assert [str(table.get_cell_at((row, 1))) for row in range(4)] == ["2", "1", "4_[0-9]", "3"]

        await pilot.press("down", "enter")
        await until(pilot, shows("Job 1", "running on", "Submitted as resnet[red]"), "details")
        await until(pilot, shows(r"\x1b]0;PWNED\x07 [red]step[/] 31"), "its output, as text")
        await pilot.press("escape")

        await pilot.press("s")
        await until(pilot, shows("suspended (user)", "..B. z1"), "job 1 suspended")
        chosen = str(app.query_one("#sentence", Static).render())
        assert chosen.startswith("1 resnet[red] in default: suspended (user).")
        await pilot.press("r")
        await until(pilot, lambda: daemon.job("1")["state"] == "running", "job 1 resumed")

        await pilot.press("c")
        await until(pilot, shows("Cancel job 1 (resnet[red])?"), "the question")
        await pilot.press("n", "c", "y")
        await until(pilot, lambda: daemon.job("1")["state"] == "cancelled", "job 1 cancelled")
        assert daemon.job("2")["state"] == "running"

        await pilot.press("slash", *"ber", "enter")
        await until(pilot, shows("All jobs with ber in name or id: 1"), "the filter")
        await pilot.press("escape", "tab")
        await until(pilot, shows("guaranteed", "default"), "the queues")

        daemon.kill()
        await until(pilot, shows("No Trainmaster answers"), "that the manager is gone")
        await pilot.press("q")
    assert app.return_code == 0


def keep_picture(app: TopApp) -> None:
    """As a picture that loads nothing from elsewhere; into docs/ where that is asked for."""
    picture = FONTS.sub("", app.export_screenshot())
    assert "resnet[red]" in picture.replace("&#160;", " ")
    assert "url(http" not in picture
    if os.environ.get(SCREENSHOTS):
        PICTURE.parent.mkdir(exist_ok=True)
        PICTURE.write_text(picture)


def test_what_is_seen_and_what_keys_do(tmp_path: Path) -> None:
    with live(tmp_path / "state", "--slots", "4", "--policy", "fifo") as daemon:
        submit(daemon)
        printed = subprocess.run(
            [sys.executable, "-m", "trainmaster", "top", "--data", str(daemon.folder)],
            text=True,
            capture_output=True,
            check=True,
        )
        assert "AAB." in printed.stdout
        assert re.search(r"^A +1 +resnet\[red\] ", printed.stdout, re.M)
        asyncio.run(use(daemon))
