"""Messages between programs, their supervisor and the manager: lines of JSON on a Unix socket.

The socket's path is TRAINMASTER_SOCKET in a program's environment. Each side may send at any time; a line
is one object of at most 64 KiB. Unknown lines are ignored, so that versions may differ.

A program sends:
    {"say": "hello", "rank": 0, "pid": 4711}                 with "process": 3 where that is not its rank
    {"say": "progress", "step": 120, "loss": 0.31, "samples_per_s": 1800.0, "steps_per_s": 7.2,
     "total_steps": 9000, "epoch_steps": 500}                all but `step` may be left out
    {"say": "progress", "step": 120, "steps_per_s": 7.2, "counted": true}
                                                             counted, without a hello: it cannot save
    {"say": "step time", "ms": 138.9}                        of each rank but 0: for a step, lately
    {"say": "own time", "rank": 1, "ranks": 2, "ms": 90.1, "step_ms": 138.9}
                                                             of each rank of DDP, without a hello: of a step
                                                             before it waits for the others
    {"say": "profile", "sync_bytes": 51200, "cpu_us": 900, "activation_bytes": 4096, "batch": 32}
                                                             of its first steps (step_profile.py); all but
                                                             the first may be left out
    {"say": "heeds stops"}                                   it looks whether it is to stop, and saves then
    {"say": "saved", "step": 120}                            a checkpoint has become durable
    {"say": "leaving", "step": 120}                          told to stop, saved, about to exit: go on later
    {"say": "done"}                                          all its work is done, about to exit
    {"say": "can release"}                                   it can give back its GPU memory after a step
    {"say": "released", "n": 3, "bytes": 4096, "host_bytes": 4096, "left": 512, "took_ms": 20}
                                                             did so as asked; `left` is what it keeps there
    {"say": "taken back", "n": 3, "bytes": 4096, "took_ms": 21}
    {"say": "not released" | "not taken back", "n": 3, "why": "OutOfMemoryError: ..."}
    {"say": "saving", "step": 120}                           it writes a checkpoint; `saved` ends that
    {"say": "not saved", "step": 120}                        and so does this: it could not be written
    {"say": "can resize", "may_lose": 1}                     it can be resized while it trains (elastic.py)
    {"say": "most ranks", "count": 4, "world": 2}            with more than 4 some would have no samples
    {"say": "ready"}                                         it was started to join the others, and can now
    {"say": "resized", "n": 2000, "regroup_ms": 40, "broadcast_ms": 9}
    {"say": "not resized", "n": 2000, "why": "..."}          it saves and leaves
    {"say": "removed", "n": 2000}                            it was asked to leave the gang, and does
    {"say": "first step", "n": 2000, "ms": 52}               how long its first step after that took
The supervisor asks a program (every rank that has said hello; again on a new hello while it holds):
    {"ask": "stop", "why": "suspend" | "resize" | "cancel", "grace_s": 30.0}
    {"ask": "save"}
    {"ask": "release", "n": 3}                               free the GPU after this step, and wait
    {"ask": "take back", "n": 3}                             go on; n = 3 is over, even if it had not begun
    {"ask": "resize", "n": 2000, "rank": 1, "world": 4, "local_rank": 1, "local_world": 4,
     "host": "127.0.0.1", "port": 41233}                     take this place at the end of a step that all
                                                             who are asked have heard; "rank": null: leave
    {"ask": "call off", "n": 2000}                           the others did not come: save and leave
    {"ask": "wait", "n": 600}                                so many seconds after an exchange that failed: a
                                                             machine with other ranks does not answer
    {"ask": "pace", "pace": 50}                              0 to 100: wait after each step (pacing.py); also
                                                             asked of programs whose steps are counted
The manager sends to the supervisor:
    {"say": "follow", "after": 7}                            send me your journal from entry 8 on, and go on
    {"order": "halt" | "kill" | "freeze" | "thaw" | "save"}
    {"order": "freeze", "may_keep": 1073741824}              bytes on each of its GPUs, at most
    {"say": "gpu use", "util_ppm": 980000}                   how busy its GPUs are; sent now and then
    {"order": "reshape", "generation": 2, "ordered_ms": 1763200000000}
                                                             go on as the run's file of that number says
    {"order": "regroup", "number": 3, "first": 2, "world": 4, "host": "10.0.0.7", "port": 41233}
                                                             all parts of the gang are ready for the resize of
                                                             that number, or go on without a lost rank
    {"order": "leave", "number": 3}                          the gang goes on on other machines
    {"order": "fail"}                                        it does not go on without the rank that was lost
    {"order": "wait", "s": 600}                              to be asked of its ranks
The supervisor answers `follow` with the lines of its journal, each
    {"n": 8, "at_ms": 1763200000000, "what": "started", ...}
"""

from __future__ import annotations

import json
from typing import Any

# What a program finds in its environment, besides RANK, WORLD_SIZE and the like. All may be missing.
SOCKET = "TRAINMASTER_SOCKET"
JOB = "TRAINMASTER_JOB"
ATTEMPT = "TRAINMASTER_ATTEMPT"
RESTART_COUNT = "TRAINMASTER_RESTART_COUNT"
"""How often the job's processes have been started before: 0 the first time."""
COUNT_STEPS = "TRAINMASTER_COUNT_STEPS"
"""0: the steps of a program that does not report are not counted."""
STEP_TIMES = "TRAINMASTER_STEP_TIMES"
"""A file for the time of each step (step_times.py): for measurements."""
STEP_PROFILE = "TRAINMASTER_STEP_PROFILE"
"""A file for a profile of the first steps (step_profile.py): for measurements."""
ARRAY_INDEX = "TRAINMASTER_ARRAY_INDEX"
ARRAY_SIZE = "TRAINMASTER_ARRAY_SIZE"
CHECKPOINT_DIR = "TRAINMASTER_CHECKPOINT_DIR"
JOINS = "TRAINMASTER_JOINS"
"""The number of the resize by which this process joins others that train."""
PROCESS = "TRAINMASTER_PROCESS"
"""By which its supervisor knows it; missing: by its rank."""
PRERUN = "TRAINMASTER_PRERUN"
"""1: only the first iterations are run, on one device, and nothing of them is kept."""
SPEED = "TRAINMASTER_SPEED"
"""How fast this rank's devices are, in millionths of the speed that is nominal for the cluster."""
END_TIME = "TRAINMASTER_END_TIME"
"""When it must have ended, in seconds since 1970."""

LONGEST = 1 << 16
"""Bytes in one line, at most."""
FULL_PACE = 100
"""Of a program that is not held back."""
Message = dict[str, Any]


def encode_message(said: Message) -> bytes:
    """A message as one line, ready to be sent."""
    return json.dumps(said, separators=(",", ":")).encode() + b"\n"


class MessageReader:
    """Splits what a socket delivers into messages; anything but a JSON object is dropped."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, piece: bytes) -> list[Message]:
        """All messages that are complete with this piece."""
        *whole, self._rest = (self._rest + piece).split(b"\n")
        if len(self._rest) > LONGEST:
            self._rest = b""
        return [said for said in map(_said, whole) if said is not None]


def _said(line: bytes) -> Message | None:
    try:
        said = json.loads(line)
    except ValueError:
        return None
    return said if isinstance(said, dict) else None
