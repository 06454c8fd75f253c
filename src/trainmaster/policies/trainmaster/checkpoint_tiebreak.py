"""Who loses least goes first: a tie-break among equally ranked runs by their durable checkpoints.

Where suspending does not save, a run that has to go falls back to its last checkpoint. The fresher that
is, the less is lost.
"""

from __future__ import annotations

from trainmaster.core.state import JobRecord
from trainmaster.core.view import View


def freshness(view: View, record: JobRecord) -> int:
    """The value of a run's rank among its equals: the fresher its checkpoint, the further back.

    Where suspending saves nobody loses anything, and all are alike. It changes only by facts, so that
    a rank made of it holds until the next one.
    """
    return 0 if view.saves_on_demand else record.saved_ms
