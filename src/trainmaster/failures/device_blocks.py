"""A device that fails job after job is set aside: counted from the ends of runs, by device.

A failure counts against its device where its reason is one of devices, or where the program died without
a word, in its first minutes, and does not fail elsewhere too. What ends otherwise on the device, or lasts,
shows that it works. An exception or a message of the program's own accuses no device.
"""

from __future__ import annotations

import re

from trainmaster.failures.reason_table import Accuses, FailureReason
from trainmaster.failures.retry_rules import EARLY_MS, PYTHON_ERROR
from trainmaster.model.failure import UNKNOWN_REASON, Blame, Failure

CRASH = "core-dump"
KILLED = "killed-by-signal"
SHELL_CODES = 126
"""From here on exit codes are a shell's, or the program's own: they tell of no signal that it met itself."""
MESSAGE_CODE = 1
"""The exit code of `sys.exit("message")`."""
PROGRESS = re.compile(r"\b(step|epoch|iter(ation)?|batch|loss)\b\W*\d|\bit/s\b", re.IGNORECASE)
"""A line about a training that goes on."""
PARTS = 4
"""No device is set aside for repeated failures while a quarter of all is aside, for whatever reason."""


def counts(failure: Failure | None, row: FailureReason, ran_ms: int) -> bool:
    """Whether such a failure may count against the device that it happened on; `row`: of its reason."""
    if failure is None or is_lasting(ran_ms):
        return False
    if row.accuses is Accuses.DEVICE:
        return failure.blame is not Blame.USER
    return failure.blame is Blame.UNKNOWN and is_silent(failure)


def is_silent(failure: Failure) -> bool:
    """Whether it died without a word: by a signal of no known sender, or with a code that nothing explains.

    What it wrote last explains it, unless that is a line about its progress.
    """
    if failure.reason == CRASH:
        return True
    if failure.reason == KILLED:
        return failure.signal == "SIGKILL"
    if not failure.signal and (failure.exit_code or 0) >= SHELL_CODES:
        return False
    if failure.reason != UNKNOWN_REASON or any(
        PYTHON_ERROR.search(each.strip()) for each in failure.lines
    ):
        return False
    if failure.signal or not failure.lines:
        return True
    return failure.exit_code != MESSAGE_CODE and PROGRESS.search(failure.lines[-1]) is not None


def is_lasting(ran_ms: int) -> bool:
    """Whether a run that lasted so long shows that its devices work, however it ended."""
    return ran_ms > EARLY_MS


def may_set_aside(devices: int, usable: int, aside: int) -> bool:
    """Whether one more may be set aside for repeated failures: not the last, and at most a quarter of all."""
    return usable > 1 and aside < max(1, devices // PARTS)
