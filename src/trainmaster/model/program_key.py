"""Which program a job runs: what is learned of one job serves the jobs with the same key."""

from __future__ import annotations

from typing import NamedTuple


class ProgramKey(NamedTuple):
    """Equal for jobs that run the same program with the same arguments, from one folder, for one user."""

    user: str
    folder: str
    program: tuple[str, ...]
    """Such as `python train.py`, or `torchrun train.py`."""
    arguments: tuple[str, ...] = ()
    """All other words of the command, those of a launcher and of the shell included."""


def without_arguments(key: ProgramKey) -> ProgramKey:
    """The same user, folder and program, whatever the arguments."""
    return key._replace(arguments=())
