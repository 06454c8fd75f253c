"""How runs and their supervisors are bounded and watched, the same on every machine of an engine."""

from __future__ import annotations

from dataclasses import dataclass

from trainmaster.failures.hang_rule import DEFAULT_LIMITS, HangLimits


@dataclass(frozen=True, slots=True)
class RunLimits:
    """What the manager's limits say of them."""

    hang: HangLimits = DEFAULT_LIMITS
    supervisor_silence_s: float = 60.0
    fork_server_silence_s: float = 30.0
    most_pids: int | None = None
    """Processes and threads of one run, where the machine can limit them; None: any number."""


DEFAULT_RUN_LIMITS = RunLimits()
