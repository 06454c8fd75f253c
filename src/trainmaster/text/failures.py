"""Why a run failed, in a few words."""

from __future__ import annotations

from trainmaster.model.failure import UNKNOWN_REASON, Failure
from trainmaster.text.formatting import shortened

MOST_WORDS = 100
"""Characters of the last line of a failure that no reason is known for."""


def failure_words(failure: Failure, title: str) -> str:
    """The title of its reason; where none is known, what it wrote last."""
    if failure.reason != UNKNOWN_REASON:
        return title
    last = failure.lines[-1:]
    return shortened(last[0], MOST_WORDS) if last else "nothing in its log says why"
