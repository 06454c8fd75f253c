"""Two ranks of PyTorch of which one waits for the other in an all-reduce: found, shown, restarted."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from tests.live.daemons import live, until
from trainmaster.engines.local.stack_dump import py_spy

pytestmark = [pytest.mark.live, pytest.mark.slow]

TRAIN = """
import os, threading, time
import torch
import torch.distributed as dist


def train():
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(24):
        if step == 20 and dist.get_rank() == 1 and os.environ["TRAINMASTER_ATTEMPT"] == "1":
            raise RuntimeError("the training of rank 1 has died, its process has not")
        model(torch.ones(2, 4)).sum().backward()
        for each in model.parameters():
            dist.all_reduce(each.grad)
        optimizer.step()
        time.sleep(0.1)
    done.set()


done = threading.Event()
dist.init_process_group("gloo")
if dist.get_rank() == 0:
    train()
else:
    threading.Thread(target=train).start()
    done.wait()
dist.destroy_process_group()
"""


def test_a_gang_that_hangs_is_found_shown_with_its_stacks_and_restarted(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(TRAIN)
    with live(tmp_path / "data", "--slots", "2", "--limit", "hang_idle=5s") as daemon:
        job = daemon.submit(
            command=[sys.executable, "train.py"],
            workdir=str(tmp_path),
            gpus=2,
            ranks="gpu",
            on_hang="restart",
            grace_period="1s",
            preflight=False,
        )
        again = until(lambda: _second_attempt(daemon.job(job)), "it to be started again", 180)
        daemon.until_state(job, "succeeded")
        story = daemon.call("GET", f"/api/v1/jobs/{job}/story")["story"]
        with daemon.open(f"/api/v1/jobs/{job}/stacks?attempt=1") as answer:
            stacks = answer.read().decode()
        with daemon.open("/metrics") as answer:
            metrics = answer.read().decode()
    assert [each["what"] for each in story if each["what"] in {"hung", "failed"}] == [
        "hung",
        "failed",
    ]
    said = next(each["sentence"] for each in story if each["what"] == "hung")
    assert said.startswith("Hangs, so it is ended to be started again: No step for ")
    assert "and its device is idle." in said
    assert any(each.startswith("Attempt 1 hung and was ended.") for each in again["remarks"])
    assert 'trainmaster_hung_runs_total{queue="default"} 1.0' in metrics
    line = TRAIN.splitlines().index("            dist.all_reduce(each.grad)") + 1
    if py_spy() is None:
        assert "Rank 0 (python" in said
        assert "py-spy is not installed" in stacks
    elif os.geteuid() == 0:  # others may not be allowed to
        assert f"Rank 0 waits in all_reduce (train.py:{line})." in said
        assert "Rank 1 waits in wait (train.py:" in said
        assert "all_reduce (" in stacks


def _second_attempt(row: dict[str, object]) -> dict[str, object] | None:
    return row if row["attempt"] == 2 and row["state"] == "running" else None
