"""What programs that start their own workers (torchrun, accelerate, deepspeed) are told: how many, and where.

`torchrun` reads variables that begin with PET_, below its own flags. The two others have flags alone: these
are put before the user's, of which the last one counts.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from trainmaster.engines.local.rank_places import RankPlace
from trainmaster.model.launch_spec import Ranks

LOOPBACK = "127.0.0.1"
ACCELERATE, DEEPSPEED = "accelerate", "deepspeed"
BEGINS = r"((?:^|[;&|(\n])\s*(?:exec\s+)?"
IN_TEXT = {
    ACCELERATE: re.compile(
        BEGINS
        + r"(?:\S*accelerate(?:\s+|-)|\S*python\S*\s+-m\s+accelerate\.commands\.)launch)(?=\s)"
    ),
    DEEPSPEED: re.compile(BEGINS + r"(?:\S*/)?deepspeed)(?=\s)"),
}
"""Where a line for the shell calls them."""
WORDS = {
    ACCELERATE: re.compile(r"(.*/)?(accelerate-)?launch|accelerate\.commands\.launch"),
    DEEPSPEED: re.compile(r"(.*/)?deepspeed"),
}
"""The word of a command after which their own flags begin."""


@dataclass(frozen=True, slots=True)
class Meeting:
    """Where all ranks of a gang meet: MASTER_ADDR and MASTER_PORT."""

    host: str
    port: str


def variables(ranks: Ranks, place: RankPlace, meeting: Meeting) -> dict[str, str]:
    """What torchrun reads; set for every command that runs once on a node, since a script may call it."""
    if ranks is not Ranks.PER_NODE:
        return {}
    return {
        "PET_NPROC_PER_NODE": str(place.slots),
        "PET_NNODES": str(place.world),
        "PET_NODE_RANK": str(place.node_rank),
        "PET_MASTER_ADDR": meeting.host,
        "PET_MASTER_PORT": meeting.port,
    }


def with_flags(
    command: tuple[str, ...], launcher: str, place: RankPlace, meeting: Meeting
) -> tuple[str, ...]:
    """The command with the flags that its launcher needs; as it is where that needs none."""
    flags = _flags(launcher, place, meeting)
    if not flags:
        return command
    if len(command) == 3 and command[1] == "-c":
        line = IN_TEXT[launcher].sub(lambda found: " ".join((found[1], *flags)), command[2])
        return (*command[:2], line)
    at = next((at for at, word in enumerate(command, 1) if WORDS[launcher].fullmatch(word)), 0)
    return (*command[:at], *flags, *command[at:]) if at else command


def _flags(launcher: str, place: RankPlace, meeting: Meeting) -> Sequence[str]:
    if launcher == DEEPSPEED:
        return ("--master_port", meeting.port)  # how many it sees in CUDA_VISIBLE_DEVICES
    if launcher != ACCELERATE:
        return ()
    flags = ["--num_processes", str(place.slots * place.world), "--num_machines", str(place.world)]
    if place.world > 1:
        flags += ["--machine_rank", str(place.node_rank), "--main_process_ip", meeting.host]
    return (*flags, "--main_process_port", meeting.port)
