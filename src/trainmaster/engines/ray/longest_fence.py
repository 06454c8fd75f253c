"""The longest fence that managers of a data folder have had: a node that is cut off may still have it."""

from __future__ import annotations

import math
from pathlib import Path

from trainmaster.durable_files import write_whole
from trainmaster.engines.protocol import EngineError

FILE = "longest-fence"
"""In the data folder: seconds."""


def longest_fence_s(folder: Path, fence_s: float) -> float:
    """Notes this one too, before any node hears of it."""
    earlier = noted_fence_s(folder)
    if fence_s > earlier:
        write_whole(folder / FILE, str(fence_s))
    return max(earlier, fence_s)


def noted_fence_s(folder: Path) -> float:
    """That of all managers until now: another one may have come since this one was started."""
    file = folder / FILE
    try:
        seconds = float(file.read_text())
    except FileNotFoundError:
        return 0.0
    except ValueError:
        seconds = math.nan
    if not 0 <= seconds < math.inf:
        raise EngineError(
            f"{file} does not hold a number of seconds: write the longest --fence there."
        )
    return seconds
