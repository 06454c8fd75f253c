"""An unmodified PyTorch program under the manager: its steps are known, and nothing else is claimed."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.live.daemons import LiveDaemon, live, until
from tests.live.stage import Stage, perform
from trainmaster.engines.local.path_entry import PATH_ENTRY
from trainmaster.model.engine_reports import Progressed
from trainmaster.model.job import Run

pytestmark = pytest.mark.live

TRAIN = """
import time, torch
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
loader = torch.utils.data.DataLoader(torch.randn(480, 4), batch_size=8, num_workers=1)
for batch in loader:
    optimizer.zero_grad()
    model(batch).sum().backward()
    optimizer.step()
    time.sleep(0.1)
"""
SAYS = """
import os, socket, sys, time
line = socket.socket(socket.AF_UNIX)
line.connect(os.environ["TRAINMASTER_SOCKET"])
def say(text): line.sendall(text.encode() + b"\\n"); time.sleep(0.3)
def counted(step): say('{"say":"progress","step":%d,"counted":true}' % step)
"""
SHOWS_PATH = "import os; print(os.environ.get('PYTHONPATH'))"


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveDaemon]:
    folder = tmp_path_factory.mktemp("counted")
    with live(folder, "--slots", "2", "--policy", "fifo") as started:
        yield started


def test_an_unmodified_program_shows_its_steps(daemon: LiveDaemon, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(TRAIN)
    job = daemon.submit(command=[sys.executable, "train.py"], workdir=str(tmp_path), gpus=1)
    running = until(lambda: _with_rate(daemon.job(job)), "its steps to be counted")
    assert running["progress"]["total_steps"] is None
    assert any("optimizer steps are counted" in each for each in running["remarks"])
    page = _page(daemon, "/metrics")
    assert f'trainmaster_job_step{{job="{job}"' in page
    assert f'trainmaster_job_steps_per_second{{job="{job}"' in page
    daemon.until_state(job, "succeeded")
    assert daemon.job(job)["progress"]["step"] == 60
    assert daemon.job(job)["saved_at_s"] is None


def test_declared_iterations_make_progress_and_a_deadline_known(
    daemon: LiveDaemon, tmp_path: Path
) -> None:
    (tmp_path / "train.py").write_text(TRAIN)
    command = [sys.executable, "train.py"]
    job = daemon.submit(command=command, workdir=str(tmp_path), iterations=60, deadline="1h")

    def judged() -> dict[str, Any] | None:
        row = daemon.job(job)
        return row if any("expected to be met" in each for each in row["remarks"]) else None

    running = until(judged, "its deadline to be judged")
    assert running["progress"]["total_steps"] == 60
    assert not any("how many there will be" in each for each in running["remarks"])
    daemon.until_state(job, "succeeded")


def _page(daemon: LiveDaemon, path: str) -> str:
    with daemon.open(path) as answer:
        return str(answer.read().decode())


def _with_rate(job: dict[str, dict[str, object]]) -> object:
    progress = job["progress"]
    return job if progress is not None and progress["steps_per_s"] else None


def test_a_job_can_do_without(daemon: LiveDaemon) -> None:
    command = [sys.executable, "-c", SHOWS_PATH]
    with_entry = daemon.submit(command=command)
    without = daemon.submit(command=command, count_steps=False)
    own = daemon.submit(command=command, env={"PYTHONPATH": "/my/own"})
    for job in (with_entry, without, own):
        daemon.until_state(job, "succeeded")
    first = daemon.log(with_entry).strip()
    assert first.split(":")[0] == PATH_ENTRY
    assert PATH_ENTRY not in daemon.log(without)
    assert daemon.log(own).strip() == f"{PATH_ENTRY}:/my/own"


def steps_of(tmp_path: Path, code: str) -> list[tuple[int, bool | None]]:
    found: list[tuple[int, bool | None]] = []

    async def act(stage: Stage) -> None:
        run = Run("1", 1)
        await stage.launch(run, stage.recipe(sys.executable, "-c", SAYS + code))
        assert (await stage.ended(run)).code == 0, stage.log(run)
        found.extend((r.step, r.counted) for r in stage.of(run) if isinstance(r, Progressed))

    perform(tmp_path, act)
    return found


def test_only_one_process_of_a_run_counts(tmp_path: Path) -> None:
    code = """
counted(10)
if os.fork() == 0:
    line = socket.socket(socket.AF_UNIX)
    line.connect(os.environ["TRAINMASTER_SOCKET"])
    counted(900)
    os._exit(0)
os.wait()
"""
    assert steps_of(tmp_path, code) == [(10, True)]


def test_counted_steps_are_left_out_beside_a_session(tmp_path: Path) -> None:
    code = """
say('{"say":"hello","rank":0}')
counted(900)
say('{"say":"progress","step":7}')
counted(901)
"""
    assert steps_of(tmp_path, code) == [(7, None)]
