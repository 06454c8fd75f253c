"""A program that gives back GPU memory itself, and fails, hangs or dies at it: no work is lost by that."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.contract.frozen_runs import cooperative_kit, frozen_run

pytestmark = pytest.mark.live

FAILS = 'raise RuntimeError("full")'


@pytest.fixture(name="place")
def fixture_place(tmp_path: Path) -> Path:
    (tmp_path / "run").mkdir()
    return tmp_path


@pytest.mark.parametrize(
    ("releasing", "why"),
    [
        (FAILS, "Its program could not give back GPU memory (RuntimeError: full)."),
        ("time.sleep(6)", "1 of its 1 processes did not give back GPU memory within 3 s."),
    ],
)
def test_the_driver_freezes_it_where_its_program_does_not(
    place: Path, releasing: str, why: str
) -> None:
    kit = cooperative_kit(place / "gpus", releasing)
    with frozen_run(place / "run", kit, least_s=3.0) as run:
        frozen = run.freeze()
        assert (frozen["what"], frozen["how"]) == ("frozen", "driver")
        assert frozen["why"].startswith(why)
        run.thaw()
        run.goes_on()


def test_what_stays_on_its_gpu_is_what_the_driver_counts_and_not_what_it_says(place: Path) -> None:
    kit = cooperative_kit(place / "gpus", left=512 << 20)
    released = "fake_driver.release()"
    keeps = replace(
        kit, prepare=kit.prepare.replace(released, f"{released}; fake_driver.allocate(7)")
    )
    with frozen_run(place / "run", keeps) as run:
        frozen = run.freeze()
        assert (frozen["how"], frozen["gpu_bytes"]) == ("cooperative", 7)
        assert frozen["is_all_on_gpus"] is True


def test_a_gang_of_which_one_fails_goes_on_or_is_frozen_as_one(place: Path) -> None:
    kit = cooperative_kit(place / "gpus", f'if os.environ["RANK"] == "1": {FAILS}')
    with frozen_run(place / "run", kit, ranks=2) as run:
        assert run.freeze()["how"] == "driver"
        run.thaw()
        run.goes_on()


def test_one_that_cannot_come_back_is_lost_and_not_blamed(place: Path) -> None:
    with frozen_run(place / "run", cooperative_kit(place / "gpus", taking=FAILS)) as run:
        assert run.freeze()["how"] == "cooperative"
        lost = run.thaw()
        assert lost["what"] == "lost"
        assert lost["why"] == (
            "It could not be made to go on. "
            "Its program could not take its GPU memory again (RuntimeError: full)."
        )


@pytest.mark.parametrize("at", ["releasing", "taking"])
def test_one_that_dies_at_it_has_ended(place: Path, at: str) -> None:
    with frozen_run(place / "run", cooperative_kit(place / "gpus", **{at: "os._exit(3)"})) as run:
        run.order("freeze")
        if at == "taking":
            run.heard("frozen")
            run.order("thaw")
        assert run.heard("ended", "lost")["what"] == "ended"
        assert run.entries("ended")[0]["code"] == 3
