"""Programs that give back their GPU's memory between two steps: host memory plays the GPU's."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tests.unit.sdk.fake_supervisor import FakeSupervisor
from tests.unit.sdk.warm import Bench, Started, program

pytestmark = pytest.mark.live


PLAYED = """
import torch
from trainmaster_sdk import offload

class Played:
    def __init__(self):
        self.blocks, self.copies = [], 0
    def has(self, tensor):
        return True
    def host_block(self, size):
        self.blocks.append(size)
        return torch.empty(size, dtype=torch.uint8)
    def copy(self, pairs):
        for to, of in pairs:
            to.copy_(of)
            self.copies += 1
    def give_back(self):
        return 7
"""

MOVES = """
offload.BLOCK, offload.SMALLEST_BLOCK = 1 << 16, 1 << 12

class Tied(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.a = torch.nn.Linear(100, 100)
        self.b = torch.nn.Linear(100, 100)
        self.b.weight = self.a.weight
        self.norm = torch.nn.BatchNorm1d(100)
        self.rnn = torch.nn.LSTM(100, 50)
    def forward(self, x):
        return self.rnn(self.norm(self.b(self.a(x).relu())))[0]

class Scaler:  # as torch's: its tensors are not in its state dict
    def __init__(self):
        self._scale, self._per = torch.full((1,), 2.0), {0: {"found": torch.zeros(1)}}

def train(kind, must_move, zeroes):
    torch.manual_seed(1)
    model, memory, scaler = Tied(), Played(), Scaler()
    optimizer = kind(model.parameters())
    average = torch.optim.swa_utils.AveragedModel(model)
    extra = {"mean": torch.zeros(100)}
    mover = offload.Offloader([model, optimizer, average, scaler, lambda: extra["mean"]], memory)
    objects = [id(each) for each in (*model.parameters(), *model.buffers(), *average.parameters())]
    losses = []
    for step in range(6):
        x = torch.randn(8, 100)
        loss = (model(x) ** 2).mean() * scaler._scale
        loss.backward()
        optimizer.step()
        if zeroes:
            optimizer.zero_grad()
        average.update_parameters(model)
        extra["mean"] = extra["mean"] + x.mean(0)
        losses.append(loss.item())
        if step in must_move:
            before = len(memory.blocks)
            said = mover.release()
            whole = [model.a.weight, model.norm.running_mean, scaler._scale, extra["mean"],
                     *(each for state in optimizer.state.values() for each in state.values())]
            assert all(each.untyped_storage().nbytes() == 0 for each in whole)
            assert said["left"] == 7 and said["bytes"] > 4 * 100 * 100, said
            assert said["host_bytes"] == sum(memory.blocks) >= said["bytes"]
            back = mover.take_back()
            assert back["bytes"] == said["bytes"]
            if step != must_move[0]:
                assert len(memory.blocks) == before, "the pool is made once"
    assert model.b.weight is model.a.weight
    after = (*model.parameters(), *model.buffers(), *average.parameters())
    assert objects == [id(each) for each in after]
    return losses, [each.clone() for each in offload.tensors_in([model, optimizer, average, scaler, extra])]

torch.set_num_threads(1)
momentum = lambda parameters: torch.optim.SGD(parameters, lr=0.1, momentum=0.9)
for kind, zeroes in ((torch.optim.AdamW, True), (momentum, False)):
    # Gradients are moved, too: they may be summed up over steps.
    losses, tensors = train(kind, (), zeroes)
    again, moved = train(kind, (1, 2, 4), zeroes)
    assert losses == again
    assert len(tensors) == len(moved)
    assert all(torch.equal(a, b) for a, b in zip(tensors, moved))
print("all held", flush=True)
"""


FULL = """
offload.RETRY_S = 0.01
kept = torch.arange(100.0)
mover = offload.Offloader([kept], Played())
mover.release()
answers = iter([True, True, False])

class Full:
    def __init__(self, storage):
        self.storage = storage
    def __getattr__(self, name):
        return getattr(self.storage, name)
    def resize_(self, size):
        if next(answers):
            raise torch.cuda.OutOfMemoryError("full")
        self.storage.resize_(size)

each = mover._moved[0]
offload._allocate(offload._Moved(Full(each.storage), each.size, each.pieces))
mover.take_back()
assert torch.equal(kept, torch.arange(100.0))
assert next(answers, None) is None
print("all held", flush=True)
"""


HALF_RELEASED = """
import numpy
moved, fixed = torch.arange(100.0), torch.from_numpy(numpy.arange(10.0))  # not torch's own memory
mover = offload.Offloader([moved, fixed], Played())
try:
    mover.release()
except RuntimeError as problem:
    assert "resiz" in str(problem), problem
else:
    raise SystemExit("it was released")
mover.take_back()
assert torch.equal(moved, torch.arange(100.0)) and fixed[9] == 9
nothing = offload.Offloader([], Played())
assert nothing.release()["bytes"] == 0
nothing.take_back()
print("all held", flush=True)
"""


def test_what_was_moved_out_comes_back_exactly_or_was_never_out(
    runs: Bench, tmp_path: Path
) -> None:
    """It trains on; a GPU that is still full is tried again; a release that fails is undone."""
    for code in (MOVES, FULL, HALF_RELEASED):
        one = runs.start(program(tmp_path, PLAYED + code))
        assert one.end() == 0, one.said
        assert "all held" in one.said


TRAINS = """
import sys, time
from contextlib import nullcontext
from trainmaster_sdk.torch import can_release, gang

steps = int(sys.argv[1])
with trainmaster_sdk.run() as tm, (gang(tm) if tm.world_size > 1 else nullcontext()):
    torch.set_num_threads(1)
    torch.manual_seed(1)
    model = torch.nn.Linear(50, 50)
    plain, groups = model, []
    def wrap():
        global model
        groups.append(torch.distributed.group.WORLD)
        model = torch.nn.parallel.DistributedDataParallel(plain)
    if tm.world_size > 1:
        wrap()
    optimizer = torch.optim.Adam(model.parameters())
    regroup = wrap if "regroup" in sys.argv else None
    can_release(tm, plain, optimizer, regroup=regroup, memory=Played())
    for step in range(1, steps + 1):
        torch.manual_seed(step * 100 + tm.rank)
        loss = (model(torch.randn(4, 50)) ** 2).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        print(f"step {step} loss {loss.item()!r}", flush=True)
        time.sleep(0.02)
        tm.progress(step=step, total_steps=steps)
        if tm.should_stop():
            tm.save(plain.state_dict(), step)
            break
    print("groups", len(set(map(id, groups))), flush=True)
"""


@pytest.mark.parametrize(("ranks", "flags"), [(1, ()), (2, ()), (2, ("regroup",))])
def test_it_waits_without_its_memory_and_goes_on(
    ranks: int, flags: tuple[str, ...], runs: Bench, there: FakeSupervisor, tmp_path: Path
) -> None:
    def start(folder: str) -> list[Started]:
        env = {
            "TRAINMASTER_SOCKET": str(there.path),
            "TRAINMASTER_CHECKPOINT_DIR": str(tmp_path / folder),
        }
        return runs.start_gang(ranks, program(tmp_path, PLAYED + TRAINS), "20", *flags, **env)

    undisturbed = start("other")
    assert [rank.end() for rank in undisturbed] == [0] * ranks, undisturbed[0].said
    there.heard.clear()
    ours = start("kept")
    there.wait_for("can release", ranks)
    there.ask({"ask": "release", "n": 1})
    told = there.wait_for("released", ranks)
    assert [line["n"] for line in told] == [1] * ranks
    assert all(line["bytes"] > 3 * 4 * 50 * 50 and line["left"] == 7 for line in told)
    assert there.said("taken back") == []
    there.ask({"ask": "take back", "n": 1})
    there.wait_for("taken back", ranks)
    there.ask({"ask": "release", "n": 2})
    there.ask({"ask": "take back", "n": 2})  # it may not have begun: nothing is left to wait for
    assert [rank.end() for rank in ours] == [0] * ranks, ours[0].said
    assert [rank.curve for rank in ours] == [rank.curve for rank in undisturbed]
    if flags:
        assert all("groups 1" not in rank.said for rank in ours), "it joined again"


def test_a_stop_ends_the_waiting_and_it_saves(
    runs: Bench, there: FakeSupervisor, tmp_path: Path
) -> None:
    one = runs.start(
        program(tmp_path, PLAYED + TRAINS),
        "100000",
        TRAINMASTER_SOCKET=str(there.path),
        TRAINMASTER_CHECKPOINT_DIR=str(tmp_path / "kept"),
    )
    there.wait_for("can release")
    there.ask({"ask": "release", "n": 1})
    there.wait_for("released")
    there.ask({"ask": "stop", "why": "suspend", "grace_s": 30})
    one.send(signal.SIGTERM)
    assert one.end() == 0, one.said
    (left,) = there.wait_for("leaving")
    assert left["step"] == max(one.curve), "no step was made in between"


OWN_GROUP = """
import torch.distributed as dist
try:
    with trainmaster_sdk.run() as tm:
        dist.init_process_group("gloo")
        for step in range(1, 100_000):
            dist.all_reduce(torch.ones(1))
            tm.progress(step=step)
            if tm.should_stop():
                tm.save({}, step)
                break
finally:
    print("joined" if dist.is_initialized() else "left", flush=True)
"""


def test_a_gang_that_is_halted_leaves_its_process_group(
    runs: Bench, there: FakeSupervisor, tmp_path: Path
) -> None:
    ranks = runs.start_gang(
        2,
        program(tmp_path, PLAYED + OWN_GROUP),
        TRAINMASTER_SOCKET=str(there.path),
        TRAINMASTER_CHECKPOINT_DIR=str(tmp_path / "kept"),
    )
    there.wait_for("heeds stops", 2)
    there.ask({"ask": "stop", "why": "suspend", "grace_s": 30})
    assert [rank.end() for rank in ranks] == [0, 0], ranks[0].said
    assert ["left" in rank.said.splitlines() for rank in ranks] == [True, True], ranks[0].said
