"""What went wrong with a run: its reason, whose fault it is, and the lines that show it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

UNKNOWN_REASON = "unknown"
"""The reason where nothing that is known matches."""
HUNG_REASON = "hung"
"""The reason of a run that was ended because it gave no sign of life."""
MEMORY_TAKEN_REASON = "gpu-memory-taken"
"""The reason of a run that was out of GPU memory because another one used more than it had booked."""

NUMBERS = "1 HUP 2 INT 3 QUIT 4 ILL 5 TRAP 6 ABRT 7 BUS 8 FPE 9 KILL 11 SEGV 13 PIPE 14 ALRM 15 TERM 24 XCPU"
SIGNALS = {
    int(number): f"SIG{name}"
    for number, name in zip(NUMBERS.split()[::2], NUMBERS.split()[1::2], strict=True)
}
"""Linux' signals by their numbers, which logs and exit codes name."""


class Blame(StrEnum):
    """Whose fault a failure is."""

    USER = "user"
    PLATFORM = "platform"
    UNKNOWN = "unknown"


class RetryRule(StrEnum):
    """Whether another attempt may help after a failure."""

    NEVER = "never"
    ONCE = "once"
    ELSEWHERE = "elsewhere"
    """On other devices or another node."""
    MORE_MEMORY = "more-memory"
    ALWAYS = "always"
    """As often as the job's `retries` allow."""


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a run failed, as far as its end and its output show it."""

    reason: str
    """Key of the table of reasons: `cuda-out-of-memory`, `unknown`, ..."""
    blame: Blame = Blame.UNKNOWN
    rank: int | None = None
    """The rank that failed first, where it is known."""
    lines: tuple[str, ...] = ()
    """Lines of its output that show the reason."""
    exit_code: int | None = None
    signal: str = ""
    """Name of the signal that ended it: `SIGKILL`."""
    path: str = ""
    """The input that it could not read."""
    devices: tuple[str, ...] = ()
    """Devices that are known to be at fault, by names that stay (a UUID, `node:slot`); mostly none is."""
    process: int | None = None
    """The process of the run whose output shows it, where a launcher has ranks of its own; None: `rank`."""

    @property
    def shown_by(self) -> int | None:
        """The process of the run whose output shows it: a rank, or one for each node."""
        return self.rank if self.process is None else self.process
