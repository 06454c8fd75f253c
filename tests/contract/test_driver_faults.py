"""Every call of the driver's freezer fails or hangs, the process or a helper dies, at each step.

Orders come from managers that die as soon as they have said them: the supervisor goes on alone.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path

import pytest

from tests.contract.frozen_runs import (
    PROGRAM,
    FrozenRun,
    driver_kit,
    frozen_run,
    helper_of,
    until,
)
from tests.live.stage import Stage, perform, state_of
from tests.live.stage import until as awaited
from trainmaster.engines.local.engine import LocalEngine
from trainmaster.gpu import fake_driver
from trainmaster.gpu.devices import detect_machine
from trainmaster.gpu.driver import FAKE_GPUS
from trainmaster.model.actions import Freeze, Kill, Thaw
from trainmaster.model.engine_reports import Frozen, NotFrozen, StopOrder, Thawed
from trainmaster.model.job import Run

pytestmark = pytest.mark.live

MakeRun = Callable[..., AbstractContextManager[FrozenRun]]
RUN = Run("12", 1)
PATIENT_S = 60.0
HANG_S = 1.0
"""How long a helper may hang here."""
COUNTED = """
import socket
line = socket.socket(socket.AF_UNIX)
line.connect(os.environ["TRAINMASTER_SOCKET"])
line.sendall(b'{"say": "progress", "step": 1, "counted": true}\\n')
"""
FREEZING, THAWING = ("state", "lock", "checkpoint"), ("state", "restore", "unlock")


@pytest.fixture
def gpus(tmp_path: Path) -> Path:
    return tmp_path / "gpus"


@pytest.fixture
def make_run(tmp_path: Path, gpus: Path) -> MakeRun:
    kit = driver_kit(gpus)
    (tmp_path / "run").mkdir()
    return lambda **more: frozen_run(tmp_path / "run", kit, **more)


def once(call: str) -> int:
    """The first call, but for questions about the state: the first of those comes before the plan."""
    return 2 if call == "state" else 1


def held(run: FrozenRun, gpus: Path, call: str, order: str, nth: int | None = None) -> int:
    """The helper, which hangs in this call."""
    nth = nth or once(call)
    fake_driver.add_fault(call, "hang", pid=run.pids[0], nth=nth, folder=gpus)
    run.order(order)

    until(lambda: is_hanging(gpus, nth))
    helper = run.helper()
    assert helper is not None
    return helper


def is_hanging(gpus: Path, nth: int) -> bool:
    """Whether the call has come that a fault waits for."""
    faults = fake_driver._read(gpus / "faults.json", [])
    return any(each.get("seen", 0) >= nth for each in faults)


@pytest.mark.parametrize("does", ["fail", "hang"])
def test_a_freeze_that_fails_leaves_the_whole_gang_running(
    make_run: MakeRun, gpus: Path, does: str
) -> None:
    with make_run(ranks=2, least_s=HANG_S if does == "hang" else PATIENT_S) as run:
        for call in FREEZING:
            fake_driver.add_fault(call, does, pid=run.pids[1], nth=once(call), folder=gpus)
            said = run.freeze()
            assert (said["what"], said["is_final"]) == ("not frozen", False), call
            assert ("error 999" if does == "fail" else "did not answer") in said["why"]
            run.goes_on()
            fake_driver.clear_faults(gpus)
        assert run.freeze()["what"] == "frozen"
        for call in THAWING:
            fake_driver.add_fault(call, does, pid=run.pids[1], nth=once(call), folder=gpus)
            assert run.thaw()["what"] == "thawed", call
            run.goes_on()
            fake_driver.clear_faults(gpus)
            assert run.freeze()["what"] == "frozen"


def test_a_walk_back_that_fails_is_tried_again(make_run: MakeRun, gpus: Path) -> None:
    with make_run(ranks=2) as run:
        fake_driver.add_fault("checkpoint", pid=run.pids[1], folder=gpus)
        fake_driver.add_fault("restore", pid=run.pids[0], nth=1, folder=gpus)
        fake_driver.add_fault("unlock", pid=run.pids[1], nth=1, folder=gpus)
        assert run.freeze()["what"] == "not frozen"
        run.goes_on()


def test_what_cannot_be_walked_back_is_lost_and_leaves_nothing(
    make_run: MakeRun, gpus: Path
) -> None:
    with make_run(ranks=2) as run:
        run.freeze()
        fake_driver.add_fault("restore", pid=run.pids[1], folder=gpus)
        said = run.thaw()
        assert said["what"] == "lost"
        assert "could not be made to go on" in said["why"]
        assert "could not restore" in said["why"]


def test_one_that_is_to_stop_and_cannot_go_on_is_killed(make_run: MakeRun, gpus: Path) -> None:
    with make_run() as run:
        run.freeze()
        fake_driver.add_fault("restore", pid=run.pids[0], folder=gpus)
        run.order("halt")
        over = run.heard("ended")
        assert (over["asked"], over["was_killed"], over["has_left"]) == ("halt", True, False)


@pytest.mark.parametrize(
    ("order", "call"),
    [*(("freeze", call) for call in FREEZING), *(("thaw", call) for call in THAWING)],
)
def test_a_process_that_dies_has_ended(
    make_run: MakeRun, gpus: Path, order: str, call: str
) -> None:
    with make_run() as run:
        if order == "thaw":
            run.freeze()
        fake_driver.add_fault(call, "die", pid=run.pids[0], nth=once(call), folder=gpus)
        run.order(order)
        over = run.heard("ended", "lost")
        assert (over["what"], over["code"], over["asked"]) == ("ended", 137, "nothing")
        assert not run.entries("not frozen")


def test_a_helper_that_is_killed_leaves_nothing_locked(make_run: MakeRun, gpus: Path) -> None:
    with make_run(least_s=PATIENT_S) as run:
        steps = [("state", 1), *((call, None) for call in FREEZING)]
        for number, (call, nth) in enumerate(steps):
            os.kill(held(run, gpus, call, "freeze", nth), signal.SIGKILL)
            assert "was killed" in run.heard("not frozen", which=number)["why"]
            run.goes_on()
            fake_driver.clear_faults(gpus)
        for number, call in enumerate(THAWING):
            assert run.freeze()["what"] == "frozen"
            os.kill(held(run, gpus, call, "thaw"), signal.SIGKILL)
            run.heard("thawed", which=number)
            run.goes_on()
            fake_driver.clear_faults(gpus)


def test_the_helper_of_a_freeze_stays_for_the_thaw_which_goes_without_it_too(
    make_run: MakeRun, gpus: Path
) -> None:
    with make_run(least_s=PATIENT_S) as run:
        run.freeze()
        helper = run.helper()
        assert helper is not None
        assert helper == held(run, gpus, "restore", "thaw")
        os.kill(helper, signal.SIGKILL)
        run.heard("thawed")
        run.goes_on()
        assert run.helper() is None
        fake_driver.clear_faults(gpus)
        run.freeze()
        helper = run.helper()
        assert helper is not None
        os.kill(helper, signal.SIGKILL)
        until(lambda: not state_of(helper))
        assert run.thaw()["what"] == "thawed"
        run.goes_on()
        assert run.helper() is None


def test_the_helper_of_a_frozen_run_does_not_outlive_its_supervisor(make_run: MakeRun) -> None:
    with make_run() as run:
        run.freeze()
        helper = run.helper()
        assert helper is not None
        run.supervisor.kill()
        until(lambda: not any(map(state_of, [*run.pids, helper])))


@pytest.mark.parametrize("call", ["lock", "checkpoint", "restore"])
def test_a_supervisor_that_is_killed_takes_all_with_it(
    make_run: MakeRun, gpus: Path, call: str
) -> None:
    with make_run() as run:
        if call == "restore":
            run.freeze()
        helper = held(run, gpus, call, "thaw" if call == "restore" else "freeze")
        run.supervisor.kill()
        until(lambda: not any(map(state_of, [*run.pids, helper])))


@pytest.mark.parametrize("order", ["thaw", "halt"])
def test_orders_are_followed_though_the_driver_hangs(
    make_run: MakeRun, gpus: Path, order: str
) -> None:
    with make_run(least_s=HANG_S) as run:
        held(run, gpus, "checkpoint", "freeze")
        run.order(order)
        if order == "thaw":
            run.heard("thawed")
            run.goes_on()
            assert not run.entries("frozen", "not frozen")
        else:
            over = run.heard("ended")
            assert (over["asked"], over["was_killed"]) == ("halt", False)


@pytest.mark.parametrize("is_counted", [True, False])
def test_what_can_never_be_frozen_says_so_once_it_trains_without_the_sdk(
    tmp_path: Path, gpus: Path, is_counted: bool
) -> None:
    kit = driver_kit(gpus)
    kit = replace(kit, prepare=COUNTED + kit.prepare) if is_counted else kit
    (tmp_path / "run").mkdir()
    with frozen_run(tmp_path / "run", kit, ranks=2) as run:
        for reason, said in {"nccl": "NCCL", "managed": "managed memory", "mps": "MPS"}.items():
            for pid in run.pids:
                fake_driver.allocate(0, [], pid=pid, folder=gpus, **{reason: True})
            refused = run.freeze()
            assert (refused["what"], refused["is_final"]) == ("not frozen", is_counted)
            assert said in refused["why"]
            run.goes_on()
            for pid in run.pids:
                fake_driver.allocate(0, [], pid=pid, folder=gpus, **{reason: False})


def test_a_frozen_run_goes_on_on_another_gpu(make_run: MakeRun, gpus: Path) -> None:
    first, second = (gpu.uuid for gpu in fake_driver.FakeDriver(gpus).gpus())
    with make_run() as run:
        for target in (second, second, first):
            run.freeze()
            assert run.thaw(devices=[target])["what"] == "thawed"
            run.goes_on()
            assert [*fake_driver.process_of(run.pids[0], gpus)["gpus"]] == [target]
        run.freeze()
        said = run.thaw(devices=[first, second])
        assert (said["what"], "those GPUs" in said["why"]) == ("lost", True)


@pytest.mark.parametrize(("order", "calls"), [(Freeze(RUN), FREEZING), (Thaw(RUN), THAWING)])
def test_a_manager_that_is_killed_finds_what_became_of_its_order(
    tmp_path: Path,
    gpus: Path,
    monkeypatch: pytest.MonkeyPatch,
    order: Freeze | Thaw,
    calls: Sequence[str],
) -> None:
    """At each step: it dies, the next one orders again what was not answered, and is answered once."""
    kit = driver_kit(gpus)
    monkeypatch.setenv(FAKE_GPUS, str(gpus))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", kit.devices[0])

    def make(folder: Path) -> LocalEngine:
        machine = detect_machine()
        return LocalEngine(folder, machine.topology, machine.devices, machine.numbers)

    async def act(stage: Stage) -> None:
        program = PROGRAM.format(prepare=kit.prepare, child=False)
        recipe = replace(stage.recipe(sys.executable, "-c", program), env=tuple(kit.env.items()))
        (pid,) = (await stage.up(RUN, recipe)).pids
        await awaited((stage.workdir / "ticks-0").exists)
        manager = stage
        for call in calls:
            if isinstance(order, Thaw):
                await manager.order(Freeze(RUN), recipe)
                await manager.heard(RUN, Frozen)
                await awaited(lambda: state_of(pid) == "T")
            fake_driver.add_fault(call, "hang", pid=pid, nth=once(call), folder=gpus)
            await manager.order(order, recipe)
            await awaited(lambda call=call: is_hanging(gpus, once(call)))
            seen = max(n for _, n in [*stage.reports, *manager.reports])
            await manager.engine.close()
            manager = stage.another()
            await manager.engine.open(lambda said, n, to=manager: to.reports.append((said, n)))
            await manager.engine.observe({RUN: seen})
            await manager.order(order, recipe)
            helper = await awaited(lambda: helper_of(pid))
            os.kill(helper, signal.SIGKILL)
            fake_driver.clear_faults(gpus)
            await manager.heard(RUN, NotFrozen if isinstance(order, Freeze) else Thawed)
            await awaited(lambda: fake_driver.state_of(pid, gpus) == fake_driver.RUNNING)
            assert state_of(pid) != "T"
            assert len(manager.of(RUN)) == 1
        await manager.order(Kill(RUN), recipe)
        assert (await manager.ended(RUN)).asked is StopOrder.KILL
        await manager.engine.close()

    perform(tmp_path, act, make)
