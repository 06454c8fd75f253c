"""Finish-time fairness (Themis, NSDI'20, section 3): how late a share makes an app."""

from __future__ import annotations

from math import inf


def rho(elapsed: float, left: float, speed: float, alone: float) -> float:
    """T_sh / T_id: the time so far and to the end at this speed, against that of a fair share.

    `elapsed` and `alone` in one unit of time, `left` in work, `speed` in work per that unit: the
    paper's iter_left x iter_time(G) is `left / speed`.
    """
    if alone <= 0:
        return inf
    return (elapsed + left / speed) / alone if speed > 0 else inf


def speed_of(gpus: int, demand_max: int, slowdown: float, serial: float = 1.0) -> float:
    """Iterations per unit of time on `gpus` GPUs: min(|G|, demand_max) / (iter_time_serial x S(G))."""
    return min(gpus, demand_max) / (serial * slowdown)
