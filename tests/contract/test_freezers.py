"""What every freezer must do, on real processes under a real supervisor."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from tests.contract.frozen_runs import (
    FrozenRun,
    Kit,
    cooperative_kit,
    driver_kit,
    frozen_run,
    stop_kit,
)
from tests.live.stage import state_of
from trainmaster.model.units import MIB

pytestmark = pytest.mark.live

FREEZERS: dict[str, Callable[[Path], Kit]] = {
    "cooperative": cooperative_kit,
    "driver": driver_kit,
    "stop": stop_kit,
}
"""How each freezer's run is made; a new one is a line here."""
MakeRun = Callable[..., AbstractContextManager[FrozenRun]]


@pytest.fixture(params=sorted(FREEZERS))
def make_run(request: pytest.FixtureRequest, tmp_path: Path) -> MakeRun:
    kit = FREEZERS[request.param](tmp_path / "gpus")
    (tmp_path / "run").mkdir()
    return lambda **more: frozen_run(tmp_path / "run", kit, **more)


def test_freeze_and_thaw_as_often_as_one_likes(make_run: MakeRun) -> None:
    with make_run(child=True) as run:
        run.order("thaw")  # one that runs is left alone
        for _ in range(2):
            frozen = run.freeze()
            assert (frozen["what"], frozen["how"]) == ("frozen", run.kit.how)
            assert frozen["why"].endswith(".")
            assert frozen["took_ms"] >= 0
            assert len(run.members()) == 2
            run.stands_still()
            run.order("freeze")  # again changes nothing
            assert run.thaw()["what"] == "thawed"
            run.goes_on()
        assert len(run.entries("frozen", "thawed", "not frozen")) == 4


def test_a_gang_is_frozen_as_one(make_run: MakeRun) -> None:
    with make_run(ranks=2) as run:
        assert run.freeze()["what"] == "frozen"
        run.stands_still()
        run.thaw()
        run.goes_on()


def test_one_that_is_told_to_stop_while_it_is_frozen_leaves_by_itself(make_run: MakeRun) -> None:
    with make_run() as run:
        run.freeze()
        run.order("halt")
        over = run.heard("ended")
        assert (over["asked"], over["was_killed"]) == ("halt", False)
        assert (run.work / "left-0").exists()


@pytest.mark.parametrize("order", ["thaw", "halt", "kill"])
def test_orders_in_the_middle_end_in_the_right_state(make_run: MakeRun, order: str) -> None:
    with make_run() as run:
        run.order("freeze")
        run.order(order)
        if order == "thaw":
            assert run.heard("thawed")
            run.goes_on()
            assert run.entries()[-1]["what"] in ("thawed", "progress")
        else:
            over = run.heard("ended")
            assert (over["asked"], over["was_killed"]) == (order, False)
            assert (run.work / "left-0").exists()


def test_a_run_that_dies_while_it_is_frozen_has_ended(make_run: MakeRun) -> None:
    with make_run(ranks=2) as run:
        run.freeze()
        os.kill(run.pids[1], signal.SIGKILL)
        over = run.heard("ended")
        assert (over["rank"], over["code"]) == (1, 137)
        assert not any(map(state_of, run.pids))


def test_a_run_that_dies_while_it_is_being_frozen_has_ended(make_run: MakeRun) -> None:
    with make_run() as run:
        run.order("freeze")
        os.kill(run.pids[0], signal.SIGKILL)
        assert run.heard("ended")["code"] == 137


def test_the_driver_takes_out_what_a_program_would_leave_and_the_next_job_needs(
    tmp_path: Path,
) -> None:
    kit = cooperative_kit(tmp_path / "gpus", left=560 * MIB)
    (tmp_path / "run").mkdir()
    with frozen_run(tmp_path / "run", kit) as run:
        frozen = run.freeze(may_keep=64 * MIB)
        assert (frozen["what"], frozen["how"]) == ("frozen", "driver")
        assert "560 MiB" in frozen["why"]
        run.thaw()
        run.goes_on()
        assert run.freeze(may_keep=600 * MIB)["how"] == "cooperative"
