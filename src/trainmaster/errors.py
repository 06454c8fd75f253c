"""Errors that are one sentence for the user."""

from __future__ import annotations

import errno

BAD_INPUT = 2
FAILED = 1

NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class CommandError(Exception):
    """One sentence for the user, and the exit code that goes with it."""

    exit_code = FAILED


class BadInput(CommandError):
    """Wrong input that the user can correct: a file, an option, a name."""

    exit_code = BAD_INPUT


class Failed(CommandError):
    """The request was right and did not succeed."""


def system_reason(error: OSError) -> str:
    """The system's reason, as the end of a sentence."""
    return (error.strerror or str(error) or type(error).__name__).lower()


def cannot_write(what: str, error: OSError) -> Failed:
    remedy = "free some space" if error.errno in NO_ROOM else "choose another place"
    return Failed(f"cannot write {what}: {system_reason(error)}; {remedy} and try again.")
