"""Relative speeds of types of devices, as somebody states them: `V100=0.4`."""

from __future__ import annotations

from collections.abc import Sequence

from trainmaster.model.units import NOMINAL

MEASURED = "measured"
MOST = 1000.0
Speeds = tuple[tuple[str, int], ...]
"""By type, in parts per million."""


class SpeedError(ValueError):
    """What is wrong with a stated speed: a sentence."""


def speeds_of(stated: Sequence[str]) -> Speeds | None:
    """None where nothing is stated; `measured` takes back what was stated before."""
    if not stated:
        return None
    if MEASURED in stated:
        if len(stated) > 1:
            raise SpeedError(f"{MEASURED} takes back all stated speeds: give it alone.")
        return ()
    return tuple(sorted(dict(map(_one, stated)).items()))


def _one(text: str) -> tuple[str, int]:
    name, equals, number = text.rpartition("=")
    try:
        speed = float(number)
    except ValueError:
        speed = 0.0
    if not (equals and name and 1 / NOMINAL <= speed <= MOST):
        raise SpeedError(
            f"{text!r} is not TYPE=SPEED, such as V100=0.4, where 1 is the speed of the nominal type."
        )
    return name, round(speed * NOMINAL)
