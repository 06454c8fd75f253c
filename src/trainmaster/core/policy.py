"""The interface of every policy, in simulation, live, and in a what-if."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from trainmaster.core.state import JobRecord
from trainmaster.core.view import View
from trainmaster.model.packing_score import PackingScore
from trainmaster.model.plan import M, Plan
from trainmaster.model.reasons import Reason


class Policy(Protocol[M]):
    """Decides which jobs run, where, and on how many GPUs. All it keeps besides its memo is a cache.

    `Policy` alone is a policy with any memo.
    """

    @property
    def name(self) -> str: ...

    needs_oracle: bool
    """Whether it must know true run times: refused outside the simulator."""
    is_moldable: bool
    """Whether it may start an elastic job below its nominal size."""
    splits: bool
    """Whether it wants to know how each one-GPU job could run in two halves."""
    profiles: bool
    """Whether it decides by measured speeds of elastic jobs: they are measured before they run."""
    progress_every_ms: int | None
    """How often elastic runs report their progress to it; None = it does not ask."""

    def first_memo(self) -> M:
        """The memory it starts with."""
        ...

    def plan(self, view: View, memo: M, now: int) -> Plan[M]:
        """What should be done now."""
        ...

    def wake(self, view: View, memo: M, now: int) -> int | None:
        """When to be asked again, after facts that call for no decision (a run has started)."""
        ...

    def explain(self, view: View, memo: M, record: JobRecord, now: int) -> Reason:
        """Why this job waits."""
        ...

    def packing_scores(
        self, view: View, memo: M, record: JobRecord, now: int
    ) -> Sequence[PackingScore]:
        """Why this job shares a GPU with others, or joins none; empty where that is not decided."""
        ...

    def forget(self) -> None:
        """Drop every cache."""
        ...
