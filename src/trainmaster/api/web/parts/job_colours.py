"""The colour of a job: the same on every page, and unlike those of the jobs submitted around it."""

from __future__ import annotations

import re
from zlib import crc32

GOLDEN_ANGLE = 137.508
NUMBER = re.compile(r"([0-9]{1,15})(?:_([0-9]{1,15}))?")


def hue(job: str) -> int:
    """In degrees, by the number of the job; elements of an array lie side by side."""
    found = NUMBER.fullmatch(job)
    if found is None:
        return crc32(job.encode()) % 360
    number, element = int(found[1]), int(found[2] or 0)
    return round(200 + (number - 1) * GOLDEN_ANGLE + element * 23) % 360
