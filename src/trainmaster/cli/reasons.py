"""Why a job waits, in words: a policy's reason with its numbers as the end of a sentence."""

from __future__ import annotations

from collections.abc import Callable

from trainmaster.model.reasons import Reason, Why
from trainmaster.model.units import WHOLE
from trainmaster.sim.report.wording import listing

NAMED = 3
"""Jobs in the way that are named before they are only counted."""


def worded(reason: Reason) -> str:
    return WORDINGS[reason.why](reason)


def _gpus(share: int) -> str:
    return f"{share / WHOLE:g} GPU{'' if share == WHOLE else 's'}"


def _holders(reason: Reason) -> str:
    """The jobs in the way, the largest first."""
    names = list(reason.held_by[:NAMED])
    if len(reason.held_by) > NAMED:
        names.append("others")
    return listing(names)


def _not_enough_free(reason: Reason) -> str:
    held = f", the rest held by {_holders(reason)}" if reason.held_by else ""
    return f"it needs {_gpus(reason.need)}, {reason.free / WHOLE:g} can be had{held}"


def _fragmented(reason: Reason) -> str:
    return (
        f"it needs {_gpus(reason.need)} together; {reason.free / WHOLE:g} are free,"
        f" at most {reason.largest_block / WHOLE:g} of them on one node"
    )


WORDINGS: dict[Why, Callable[[Reason], str]] = {
    Why.NOT_ENOUGH_FREE: _not_enough_free,
    Why.FRAGMENTED: _fragmented,
    Why.BEHIND_OTHERS: lambda reason: "it would fit, but the policy lets others go first",
    Why.SHARE_USED_UP: lambda reason: (
        f"it needs {_gpus(reason.need)}, and its queue is not given as many"
    ),
    Why.RESERVED: lambda reason: f"the GPUs that it could use are kept for {_holders(reason)}",
    Why.WAITING_FOR_RELEASE: lambda reason: "the GPUs that it was promised are not released",
    Why.DEADLINE_LEAVES_TIME: lambda reason: "its deadline leaves time to let others go first",
    Why.NEVER_FITS: lambda reason: (
        f"it needs {_gpus(reason.need)}, which its queue or this cluster can never hold"
    ),
}
