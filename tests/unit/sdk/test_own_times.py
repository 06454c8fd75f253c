"""What a rank takes for itself, measured around the calls of torch: with stand-ins for torch and its GPUs."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from tests.unit.sdk.fake_supervisor import FakeSupervisor, booth
from trainmaster_sdk import own_times
from trainmaster_sdk.own_times import OwnTimes


class Clock:
    """Seconds of the program, and of a GPU that is behind it by a whole step."""

    def __init__(self) -> None:
        self.now = 100.0

    def monotonic(self) -> float:
        return self.now


class Event:
    """In the stream of a GPU, which gets to it `BEHIND` seconds later."""

    BEHIND = 50.0
    clock: Clock

    def __init__(self, enable_timing: bool) -> None:
        assert enable_timing

    def record(self, stream: object) -> None:
        self.at = self.clock.now + self.BEHIND

    def query(self) -> bool:
        return self.clock.now >= self.at

    def elapsed_time(self, end: Event) -> float:
        return (end.at - self.at) * 1000


class Ddp:
    """As torch's, as far as it is called."""

    def __init__(self, ranks: int = 2, buffers: bool = False, device: str = "cpu") -> None:
        self.process_group = SimpleNamespace(size=lambda: ranks)
        self.require_backward_grad_sync = True
        self.device_type = self.device = device
        self.will_sync_module_buffers = lambda: buffers

    def _pre_forward(self) -> str:
        return "before"

    def _post_forward(self) -> str:
        return "after"


class Program:
    """A rank of two that calls what torch would call."""

    def __init__(self, supervisor: FakeSupervisor, clock: Clock) -> None:
        self.clock = clock
        self.may_learn, self.is_compiling = True, False
        distributed = SimpleNamespace(
            is_available=lambda: True,
            is_initialized=lambda: True,
            get_world_size=lambda: 2,
            get_rank=lambda: 1,
        )
        cuda = SimpleNamespace(
            Event=Event, current_stream=lambda device: device, is_current_stream_capturing=bool
        )
        torch = SimpleNamespace(
            distributed=distributed,
            cuda=cuda,
            is_grad_enabled=lambda: self.may_learn,
            compiler=SimpleNamespace(is_compiling=lambda: self.is_compiling),
            nn=SimpleNamespace(
                parallel=SimpleNamespace(DistributedDataParallel=type("D", (Ddp,), {}))
            ),
        )
        self.kind = torch.nn.parallel.DistributedDataParallel
        self.times = OwnTimes(str(supervisor.path), torch)
        self.distributed = distributed

    def step(self) -> None:
        self.times.end_step(self, (), {})

    def forward(self, ddp: Any, takes_s: float) -> None:
        assert ddp._pre_forward() == "before"
        self.clock.now += takes_s
        assert ddp._post_forward() == "after"

    def train(self, ddp: Any, steps: int = 12) -> None:
        """Data takes 0.2 s, the forward pass 0.1 s and the rest of a step, with waiting, 0.5 s."""
        for _ in range(steps):
            self.clock.now += 0.2
            self.forward(ddp, 0.1)
            self.clock.now += 0.5
            self.step()


@pytest.fixture
def supervisor() -> Iterator[FakeSupervisor]:
    with booth() as opened:
        yield opened


@pytest.fixture
def program(supervisor: FakeSupervisor, monkeypatch: pytest.MonkeyPatch) -> Iterator[Program]:
    clock = Event.clock = Clock()
    monkeypatch.setattr(own_times, "time", clock)
    made = Program(supervisor, clock)
    monkeypatch.setitem(own_times.sys.modules, "torch.distributed", made.distributed)  # type: ignore[arg-type]
    yield made
    made.times.close()


@pytest.mark.parametrize("device", ["cpu", "cuda"])
@pytest.mark.parametrize(("buffers", "own_ms"), [(False, 300), (True, 200)])
def test_what_comes_before_it_waits_is_its_own(
    supervisor: FakeSupervisor, program: Program, device: str, buffers: bool, own_ms: int
) -> None:
    program.train(program.kind(buffers=buffers, device=device), steps=100)
    supervisor.wait_for("own time")
    said = supervisor.said("own time")[-1]
    assert (said["rank"], said["ranks"]) == (1, 2)
    assert said["ms"] == pytest.approx(own_ms)
    assert said["step_ms"] == pytest.approx(800)


def test_accumulated_gradients_and_evaluations_end_nothing(
    supervisor: FakeSupervisor, program: Program
) -> None:
    ddp = program.kind()
    program.train(ddp, steps=3)
    for _ in range(5):
        program.may_learn = False
        program.forward(ddp, 0.4)
        program.may_learn, ddp.require_backward_grad_sync = True, False
        program.forward(ddp, 0.1)
        program.clock.now += 0.5
        ddp.require_backward_grad_sync = True
        program.train(ddp, steps=1)
    supervisor.wait_for("own time")
    assert supervisor.said("own time")[-1]["ms"] == pytest.approx(1300)


def test_nothing_is_told_of_a_model_that_not_all_ranks_share(
    supervisor: FakeSupervisor, program: Program
) -> None:
    program.train(program.kind(ranks=1), steps=30)
    assert program.times._client is None
    assert not supervisor.said("own time")


def test_nothing_is_told_of_a_program_without_ddp(program: Program) -> None:
    for _ in range(30):
        program.clock.now += 1
        program.step()
    assert program.times._client is None


def test_what_is_compiled_leaves_it_out(program: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    ddp = program.kind()
    program.train(ddp, steps=3)
    program.is_compiling = True
    monkeypatch.setattr(program.times, "begin_forward", pytest.fail)
    monkeypatch.setattr(program.times, "end_forward", pytest.fail)
    program.train(ddp, steps=3)
    assert program.times._client is None


def test_one_process_is_no_gang(program: Program) -> None:
    program.distributed.get_world_size = lambda: 1
    program.train(program.kind(), steps=30)
    assert program.kind._pre_forward is Ddp._pre_forward
    assert program.times._client is None
