"""Settings that a contender earns on other jobs than those it is measured on.

Every setting of its grid serves the jobs before the measured ones, alone and to their end; the one
with the least excess wins, and of equals the first.
"""

from __future__ import annotations

from collections.abc import Sequence

from trainmaster.evaluation.scoring import excess_of
from trainmaster.evaluation.suite import Contender, Settings
from trainmaster.evaluation.trial_simulation import Stage, policy_of, simulate
from trainmaster.model.trace import TracedJob


def tuned(contender: Contender, stage: Stage, prefix: Sequence[TracedJob]) -> Settings:
    """The best of the contender's grid on these jobs."""
    assert contender.grid, f"{contender.label} has nothing to choose from"
    if not prefix or len(contender.grid) == 1:
        return contender.grid[0]
    found = [_excess(contender, settings, stage, prefix) for settings in contender.grid]
    return contender.grid[found.index(min(found))]


def _excess(
    contender: Contender, settings: Settings, stage: Stage, prefix: Sequence[TracedJob]
) -> float:
    """Worst of all where some job does not end."""
    policy = policy_of(contender.policy, {**contender.settings, **settings})
    excess = excess_of(simulate(stage, policy, prefix, prefix))
    return float("inf") if excess is None else round(excess, 6)
