"""How far an opportunistic run is held back, by the step time of the guaranteed one beside it (AntMan).

Pure: one call for each new measurement. A slowdown beyond the tolerance halves the pace at once; it recovers
slowly. The pace of a run that cannot be borne at all is 0, and it is tried again more and more rarely.
"""

from __future__ import annotations

from dataclasses import dataclass

from trainmaster_sdk.wire import FULL_PACE

STEP = 5
"""The pace is raised by so much, and below it there is only 0."""
PATIENCE = 3
"""So many good measurements in a row raise the pace."""
MOST_PATIENCE = 300
SETTLED = 25
"""A pace that has come so far is borne: patience begins again."""
PPM = 1_000_000


@dataclass(frozen=True, slots=True)
class Pace:
    percent: int = FULL_PACE
    good: int = 0
    """Good measurements in a row."""
    patience: int = PATIENCE


def slowdown_ppm(step_us: int, alone_us: int) -> int:
    """How much longer a step takes than alone, in millionths."""
    return max(0, (step_us - alone_us) * PPM // max(1, alone_us))


def next_pace(pace: Pace, slowdown: int, tolerance: int) -> Pace:
    """The pace after a measurement of the neighbour; both in millionths."""
    if slowdown > tolerance:
        return _lower(pace)
    good = pace.good + 1
    if good < pace.patience or pace.percent == FULL_PACE:
        return Pace(pace.percent, min(good, pace.patience), pace.patience)
    percent = min(FULL_PACE, pace.percent + STEP)
    return Pace(percent, 0, PATIENCE if percent >= SETTLED else pace.patience)


def _lower(pace: Pace) -> Pace:
    percent = pace.percent // 2
    if percent >= STEP:
        return Pace(percent, 0, pace.patience)
    is_new = pace.percent > 0
    patience = min(MOST_PATIENCE, 2 * pace.patience) if is_new else pace.patience
    return Pace(0, 0, patience)
