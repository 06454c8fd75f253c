"""Model state under ZeRO, by the example of its paper: 7.5 billion parameters on 64 processes."""

from __future__ import annotations

import pytest

from trainmaster.estimators.memory.formulas import zero_bytes


@pytest.mark.parametrize(("stage", "gigabytes"), [(0, 120.0), (1, 31.4), (2, 16.6), (3, 1.88)])
def test_zero_divides_the_state(stage: int, gigabytes: float) -> None:
    assert zero_bytes(7_500_000_000, stage, 64) / 1e9 == pytest.approx(gigabytes, rel=0.003)


def test_one_process_holds_all_in_every_stage() -> None:
    assert {zero_bytes(1000, stage, 1) for stage in (0, 1, 2, 3)} == {16_000}
