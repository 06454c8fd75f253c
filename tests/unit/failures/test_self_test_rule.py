"""What a self-test says of a device."""

from __future__ import annotations

import pytest

from trainmaster.failures.self_test_rule import SelfTest, Verdict, verdict

GOOD = SelfTest(True, True, 1_250_000, 4_096.0)


@pytest.mark.parametrize(
    ("test", "earlier", "found", "said"),
    [
        (SelfTest(why="no driver"), (), Verdict.UNTESTED, "It could not be tested: no driver."),
        (
            SelfTest(True, False, why="a copy came out wrong"),
            (9_999.0,) * 9,
            Verdict.BAD,
            "Its self-test failed: a copy came out wrong.",
        ),
        (
            GOOD,
            (),
            Verdict.GOOD,
            "Its self-test passed: copies at 4.0 GiB/s; products at 1,250 GFLOP/s.",
        ),
        (
            GOOD,
            (90_000.0,) * 2,
            Verdict.GOOD,
            "Its self-test passed: copies at 4.0 GiB/s; products at 1,250 GFLOP/s.",
        ),
        (
            GOOD,
            (8_000.0, 90_000.0, 1.0),
            Verdict.GOOD,
            "Its self-test passed: copies at 4.0 GiB/s, usually 7.8 GiB/s; products at 1,250 GFLOP/s.",
        ),
        (
            GOOD,
            (8_193.0, 9_000.0, 8_193.0),
            Verdict.SLOW,
            "Its self-test is slow: copies at 4.0 GiB/s, usually 8.0 GiB/s; products at 1,250 GFLOP/s.",
        ),
    ],
    ids=["untested", "wrong", "first", "too few to compare", "one of noise", "slow"],
)
def test_verdicts(test: SelfTest, earlier: tuple[float, ...], found: Verdict, said: str) -> None:
    assert verdict(test, earlier) == (found, said)
