"""What a self-test of a device says: wrong, slow against the device's own past, or in order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from statistics import median

FEWEST = 3
"""Earlier tests that a device is compared with, at least."""
SLOW = 2
"""How many times slower than usual its copies must be to be called slow."""


@dataclass(frozen=True, slots=True)
class SelfTest:
    """What a test measured; a device that could not be tested has a `why` and no numbers."""

    is_tested: bool = False
    is_right: bool = False
    """Whether the matrix product and the copies came out as they must."""
    mflop_s: int = 0
    """Millions of operations per second of the product."""
    copy_mib_s: float = 0.0
    why: str = ""
    """What went wrong, or why it could not be tested."""


class Verdict(Enum):
    GOOD = "good"
    BAD = "bad"
    SLOW = "slow"
    UNTESTED = "untested"


def verdict(test: SelfTest, earlier: Sequence[float]) -> tuple[Verdict, str]:
    """What to think of a device, and a sentence; `earlier` are the copy speeds of its tests before."""
    if not test.is_tested:
        return Verdict.UNTESTED, f"It could not be tested: {test.why}."
    if not test.is_right:
        return Verdict.BAD, f"Its self-test failed: {test.why}."
    speed = f"copies at {test.copy_mib_s / 1024:.1f} GiB/s"
    rate = f"; products at {test.mflop_s / 1000:,.0f} GFLOP/s" if test.mflop_s else ""
    if len(earlier) < FEWEST:
        return Verdict.GOOD, f"Its self-test passed: {speed}{rate}."
    usual = median(earlier)
    against = f"{speed}, usually {usual / 1024:.1f} GiB/s{rate}"
    if test.copy_mib_s * SLOW < usual:
        return Verdict.SLOW, f"Its self-test is slow: {against}."
    return Verdict.GOOD, f"Its self-test passed: {against}."
