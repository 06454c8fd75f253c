"""The daemon's process is killed at random moments while it launches: every attempt still runs once."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.live.stage import Stage, alive_with, perform
from trainmaster.engines.local import journal
from trainmaster.model.job import Run

pytestmark = pytest.mark.live
ROOT = Path(__file__).parents[2]
RUNS = 40
CRASHES = 8


def test_no_attempt_is_lost_or_run_twice_when_the_daemon_is_killed_while_it_launches(
    tmp_path: Path,
) -> None:
    (tmp_path / "counts").mkdir()
    (tmp_path / "work").mkdir()
    moments = random.Random(5)
    for _ in range(CRASHES):
        daemon = launching(tmp_path)
        time.sleep(moments.uniform(0.2, 0.7))
        daemon.send_signal(signal.SIGKILL)
        daemon.wait()

    async def act(stage: Stage) -> None:
        runs = [Run(str(number), 1) for number in range(RUNS)]
        await stage.engine.observe(dict.fromkeys(runs, 0))
        for run in runs:
            await stage.launch(run, stage.shell("echo $$ >> ../counts/$TRAINMASTER_JOB"))
        for run in runs:
            over = await stage.ended(run)
            assert (over.code, over.run) == (0, run)
            entries = [entry["what"] for entry in journal.read(str(stage.engine.folder_of(run)))]
            assert entries.count("started") == entries.count("ended") == 1
            assert len({n for report, n in stage.reports if report == stage.of(run)[0]}) == 1
            wrote = (tmp_path / "counts" / run.job).read_text().split()
            assert len(wrote) == 1, f"run {run.job} was started {len(wrote)} times"
        assert alive_with(f"TRAINMASTER_CHECKPOINT_DIR={stage.checkpoints}") == []

    perform(tmp_path, act)


def launching(folder: Path) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "tests.live.launching", str(folder), "0", str(RUNS)],
        cwd=ROOT,
        stdout=subprocess.DEVNULL,
    )
