"""Serves the pages for a manager, which starts it: `python -m trainmaster.api.web`."""

from __future__ import annotations

import argparse
import contextlib
import os
import resource
import signal
import threading
from pathlib import Path

import uvicorn

from trainmaster.api.web.own_log import keep_bounded
from trainmaster.api.web.site import site
from trainmaster.api.web.viewer import Manager

OOM_SCORE = Path("/proc/self/oom_score_adj")
FIRST_TO_GO = "500"
"""Where memory is short, this process is killed before the manager and its jobs."""
NICENESS = 5
"""The scheduler on the same machine comes first."""
MOST_MEMORY = 4 << 30
"""Of addresses; it starts with some 100 MiB."""


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m trainmaster.api.web", description=__doc__)
    parser.add_argument(
        "--manager", required=True, help="The manager's Unix socket for sessions alone."
    )
    parser.add_argument("--socket", required=True, help="Unix socket to serve the pages on.")
    parser.add_argument("--log", type=Path, help="File that it prints to, to keep it bounded.")
    said = parser.parse_args()
    _limit_memory()
    os.nice(NICENESS)
    with contextlib.suppress(OSError):  # where there is no /proc
        OOM_SCORE.write_text(FIRST_TO_GO)
    threading.Thread(target=_end_with_input, daemon=True).start()
    if said.log is not None:
        threading.Thread(target=keep_bounded, args=(said.log,), daemon=True).start()
    uvicorn.run(site(Manager(said.manager)), uds=said.socket, log_level="warning")


def _limit_memory() -> None:
    """What one page makes of a request must not take the memory of the machine."""
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    most = MOST_MEMORY if hard == resource.RLIM_INFINITY else min(hard, MOST_MEMORY)
    resource.setrlimit(resource.RLIMIT_AS, (most, most))


def _end_with_input() -> None:
    """The manager is at its other end. All that was started here goes too: it is the first of its group."""
    while os.read(0, 1):
        pass
    os.killpg(os.getpgrp(), signal.SIGKILL)


if __name__ == "__main__":
    main()
