"""What the SDK does for PyTorch, in real processes: data by step, gangs, workers, sharded checkpoints."""

from __future__ import annotations

import random
import re
import signal
from pathlib import Path

import pytest

from tests.unit.sdk.fake_supervisor import FakeSupervisor
from tests.unit.sdk.warm import Bench, Started, program
from trainmaster_sdk.checkpoints import Checkpoints

pytestmark = pytest.mark.live


BATCHES = """
from trainmaster_sdk import Session
from trainmaster_sdk.environment import JobEnvironment
from trainmaster_sdk.torch import StepBatches, batch_of

size, batch = 10, 4
row = [one for step in range(25) for one in batch_of(step, size, batch, seed=3)]
epochs = [row[begin:begin + size] for begin in range(0, 100, size)]
assert all(sorted(epoch) == list(range(size)) for epoch in epochs)
assert len({tuple(epoch) for epoch in epochs}) > 5
assert row != [one for step in range(25) for one in batch_of(step, size, batch, seed=4)]
assert len(batch_of(0, 3, 8)) == 8

def part(rank, world, first):
    place = JobEnvironment.of({"RANK": str(rank), "WORLD_SIZE": str(world)})
    batches = StepBatches(Session(place, "x", 1), size, batch, first, 25, seed=3)
    assert len(batches) == 25 - first
    return list(batches)

for world in (1, 2, 3, 5):
    parts = [part(rank, world, 7) for rank in range(world)]
    again = [one for step in zip(*parts) for piece in step for one in piece]
    assert again == row[7 * batch:], world
print("all held")
"""


def test_batches_depend_on_the_step_alone(runs: Bench, tmp_path: Path) -> None:
    one = runs.start(program(tmp_path, BATCHES))
    assert one.end() == 0, one.said
    assert "all held" in one.said


WORKERS = """
import time, torch
from torch.utils.data import DataLoader, TensorDataset
from trainmaster_sdk.torch import StepBatches, outlive_stop

with trainmaster_sdk.run() as tm:
    data = TensorDataset(torch.arange(1000.0))
    batches = StepBatches(tm, 1000, 8, 0, 10_000)
    loader = DataLoader(data, batch_sampler=batches, num_workers=2, worker_init_fn=outlive_stop,
                        multiprocessing_context="fork")
    for step, (batch,) in enumerate(loader, 1):
        print(f"step {step} loss {batch.sum().item()}", flush=True)
        time.sleep(0.02)
        tm.progress(step=step, total_steps=10_000)
        if tm.should_stop():
            time.sleep(1.5)  # saving takes its time; a worker that dies now would fail the program
            tm.save({"step": step}, step)
            break
"""


def test_workers_that_load_data_outlive_the_stop(
    runs: Bench, there: FakeSupervisor, tmp_path: Path
) -> None:
    one = runs.start(
        program(tmp_path, WORKERS),
        TRAINMASTER_SOCKET=str(there.path),
        TRAINMASTER_CHECKPOINT_DIR=str(tmp_path / "kept"),
    )
    one.wait_for_step(3)
    one.send_group(signal.SIGUSR1)
    one.send_group(signal.SIGTERM)
    assert one.end() == 0, one.said
    (left,) = there.wait_for("leaving")
    found = Checkpoints(tmp_path / "kept", 3).newest()
    assert found is not None
    assert found.name == f"step-{left['step']}"


LAST_STEP = """
import os, signal
from trainmaster_sdk.torch import gang

with trainmaster_sdk.run() as tm, gang(tm):
    for step in (1, 2, 3):
        if tm.is_rank_zero:  # the others know nothing of the number of steps
            tm.progress(step=step, total_steps=3)
        if step == 3 and tm.rank == 1:
            os.kill(os.getpid(), signal.SIGTERM)
        if tm.should_stop():
            print(f"rank {tm.rank} stops at {step}", flush=True)
            break
"""


def test_all_ranks_know_that_the_last_step_was_done(
    runs: Bench, there: FakeSupervisor, tmp_path: Path
) -> None:
    ranks = runs.start_gang(
        2,
        program(tmp_path, LAST_STEP),
        TRAINMASTER_SOCKET=str(there.path),
        TRAINMASTER_CHECKPOINT_DIR=str(tmp_path / "kept"),
    )
    assert [rank.end() for rank in ranks] == [0, 0], ranks[0].said + ranks[1].said
    assert [re.findall(r"stops at (\d)", rank.said) for rank in ranks] == [["3"], ["3"]]
    there.wait_for("done", 2)
    assert there.said("leaving") == []


SHARDED = """
import torch
from trainmaster_sdk.torch import ShardedCheckpoints, gang

with trainmaster_sdk.run() as tm, gang(tm):
    checkpoints = ShardedCheckpoints(tm)
    weights = torch.full((1000,), 1.0)
    assert checkpoints.load({"weights": weights}) is None
    for step in (1, 2, 3, 4):
        weights.fill_(float(step))
        checkpoints.save({"weights": weights}, step)
        weights.fill_(-1.0)  # training goes on while it is written
    checkpoints.wait()
    assert checkpoints.load({"weights": weights}) == 4
    assert torch.equal(weights, torch.full((1000,), 4.0)), weights
    print("all held", flush=True)
"""


def test_a_checkpoint_in_the_background_is_of_its_step(
    runs: Bench, there: FakeSupervisor, tmp_path: Path
) -> None:
    ranks = runs.start_gang(
        2,
        program(tmp_path, SHARDED),
        TRAINMASTER_SOCKET=str(there.path),
        TRAINMASTER_CHECKPOINT_DIR=str(tmp_path / "kept"),
    )
    assert [rank.end() for rank in ranks] == [0, 0], ranks[0].said + ranks[1].said
    assert "all held" in ranks[1].said
    assert [line["step"] for line in there.wait_for("saved", 4)] == [1, 2, 3, 4]
    kept = sorted(path.name for path in (tmp_path / "kept").iterdir())
    assert kept == ["latest", "step-2", "step-3", "step-4"]


SAVES = """
with trainmaster_sdk.run() as tm:
    found = tm.load()
    first = found.step if found else 0
    if found:
        assert found.state == [first] * 200_000, "torn"
    for step in range(first + 1, 100_000):
        tm.save([step] * 200_000, step)
        print(f"step {step} loss 0", flush=True)
"""


def test_killed_at_any_moment_it_finds_all_that_it_saved(runs: Bench, tmp_path: Path) -> None:
    chance = random.Random(5)
    last = 0
    for _ in range(6):
        one = runs.start(
            program(tmp_path, SAVES), TRAINMASTER_CHECKPOINT_DIR=str(tmp_path / "kept")
        )
        one.wait_for_step(last + 2)
        kill_after(one, chance)
        said = max(one.curve)
        newest = Checkpoints(tmp_path / "kept", 3).newest()
        assert newest is not None
        last = int(newest.name.rpartition("-")[2])
        assert last >= said, one.said
        assert "torn" not in one.said


def kill_after(one: Started, chance: random.Random) -> None:
    """At some point of the next save or the one after."""
    begun = max(one.curve)
    for _ in range(chance.randrange(2000)):
        if max(one.curve) > begun + 1:
            break
    one.send(signal.SIGKILL)
    assert one.end() == -signal.SIGKILL, one.said
