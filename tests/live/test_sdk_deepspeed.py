"""A DeepSpeed loop, where DeepSpeed is installed: stopped and started again, no step comes twice."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.live.daemons import until
from tests.unit.sdk.fake_supervisor import FakeSupervisor, booth, environment

pytestmark = pytest.mark.live
pytest.importorskip("deepspeed", reason="DeepSpeed is not installed: pip install deepspeed")

TRAIN = """
import os, socket, time
import deepspeed, torch
import trainmaster_sdk
from trainmaster_sdk.deepspeed import DeepSpeedLoop

TOTAL = 12
with socket.socket() as probe:
    probe.bind(("127.0.0.1", 0))
    port = probe.getsockname()[1]
os.environ.update(RANK="0", WORLD_SIZE="1", LOCAL_RANK="0", MASTER_ADDR="127.0.0.1")
os.environ["MASTER_PORT"] = str(port)
torch.manual_seed(0)
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
with trainmaster_sdk.run() as tm:
    deepspeed.init_distributed(dist_backend="gloo")
    engine, *_ = deepspeed.initialize(
        model=model, optimizer=optimizer, config={"train_batch_size": 8}
    )
    loop = DeepSpeedLoop(tm, engine, save_every=100)
    step = loop.load()
    while step < TOTAL:
        torch.manual_seed(step)
        loss = engine(torch.randn(8, 4).to(engine.device)).pow(2).mean()
        engine.backward(loss)
        engine.step()
        time.sleep(0.1)
        step += 1
        print(f"step {step} loss {loss.item()!r}", flush=True)
        if loop.should_leave(step, loss=loss, total_steps=TOTAL):
            break
"""
BUILD_S = 900.0
"""DeepSpeed may compile an operator first."""
STEP = re.compile(r"^step (\d+) loss (\S+)$", re.MULTILINE)


@pytest.fixture
def supervisor() -> Iterator[FakeSupervisor]:
    with booth() as opened:
        yield opened


def start(folder: Path, supervisor: FakeSupervisor, attempt: int) -> subprocess.Popen[str]:
    env = environment(
        TRAINMASTER_SOCKET=str(supervisor.path),
        TRAINMASTER_CHECKPOINT_DIR=str(folder),
        TRAINMASTER_ATTEMPT=str(attempt),
    )
    return subprocess.Popen(
        [sys.executable, "-c", TRAIN], env=env, text=True, stdout=-1, stderr=subprocess.STDOUT
    )


def test_no_step_comes_twice(supervisor: FakeSupervisor, tmp_path: Path) -> None:
    first = start(tmp_path, supervisor, 1)
    until(lambda: len(supervisor.said("progress")) >= 3, "three steps", BUILD_S)
    supervisor.ask({"ask": "stop", "why": "suspend", "grace_s": 30.0})
    said, _ = first.communicate(timeout=300)
    assert first.returncode == 0, said
    second = start(tmp_path, supervisor, 2)
    more, _ = second.communicate(timeout=300)
    assert second.returncode == 0, more
    steps = [int(step) for step, _ in STEP.findall(said + more)]
    assert steps == list(range(1, 13))
    assert 0 < len(STEP.findall(said)) < 12
    losses = [float(loss) for _, loss in STEP.findall(said + more)]
    assert losses != losses[:1] * 12
