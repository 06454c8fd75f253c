"""What users are told of suspending a job in memory: how often, at what cost, and why not now."""

from __future__ import annotations

from trainmaster.core.freeze_check import Obstacle, freeze_refusal
from trainmaster.core.state import State
from trainmaster.daemon.job_history import JobHistory
from trainmaster.daemon.live_job import LiveJob
from trainmaster.text.formatting import as_sentence, size
from trainmaster.text.messages import freezes_sentence

OBSTACLES = {
    Obstacle.FOUND_UNABLE: "Its run cannot be suspended in memory: {last}",
    Obstacle.TRIED_JUST_NOW: "It could not be suspended in memory a short while ago: {last}",
    Obstacle.MPS: "A run that shares its GPU by MPS cannot be suspended in memory.",
    Obstacle.HOST_MEMORY: "It cannot be suspended in memory now: that needs {needed} of host memory,"
    " {guess}and {free} is free.",
    Obstacle.GPU_MEMORY: "It cannot be suspended in memory now: what it would keep on its GPU is needed.",
}
UNMEASURED = "as much as its GPUs have, because its own use is not measured yet, "


def obstacle_sentence(state: State, live: LiveJob, now: int) -> str:
    """Why its run cannot be suspended in memory now; empty if it can, or if it never could."""
    record = live.record
    why = None
    if record is not None and record.placement is not None:
        why = freeze_refusal(state, record, now)
    if record is None or why is None or why.obstacle not in OBSTACLES:
        return ""
    said = OBSTACLES[why.obstacle].format(
        last=live.history.not_frozen,
        needed=size(why.needed),
        free=size(why.free),
        guess="" if record.gpu_memory else UNMEASURED,
    )
    return as_sentence(said)


def freeze_remarks(history: JobHistory) -> tuple[str, ...]:
    """How often a job was suspended in memory by freeing its GPUs, and what that cost."""
    last = history.last_freeze
    if last is None or last.how == "stop":
        return ()
    told = (history.freezes, history.freezing_ms, last.how, last.host_bytes, last.gpu_bytes)
    return (freezes_sentence(*told),)
