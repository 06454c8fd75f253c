"""Serves the dashboard: `python -m trainmaster.api.web --url URL (--socket PATH | --port PORT)`."""

from __future__ import annotations

import argparse
import os
import signal
import threading
from pathlib import Path

import uvicorn

from trainmaster.api.web.site import site
from trainmaster.api.web.viewer import Manager

OOM_SCORE = Path("/proc/self/oom_score_adj")
FIRST_TO_GO = "500"
"""Where memory is short, this process is killed before the manager and its jobs."""
NICENESS = 5
"""The scheduler on the same machine comes first."""


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m trainmaster.api.web", description=__doc__)
    parser.add_argument("--url", default="http://localhost", help="Where the manager answers.")
    parser.add_argument("--manager-socket", help="The manager's Unix socket, instead of its URL.")
    parser.add_argument("--socket", help="Unix socket to serve the pages on.")
    parser.add_argument(
        "--ends-with-input",
        action="store_true",
        help="End when the standard input does: its other end is the manager's.",
    )
    parser.add_argument(
        "--port", type=int, default=8480, help="Port of this machine to serve them on."
    )
    said = parser.parse_args()
    if said.ends_with_input:
        os.nice(NICENESS)
        OOM_SCORE.write_text(FIRST_TO_GO)
        threading.Thread(target=_end_with_input, daemon=True).start()
    app = site(Manager(said.url, said.manager_socket))
    uvicorn.run(app, uds=said.socket, host="127.0.0.1", port=said.port, log_level="warning")


def _end_with_input() -> None:
    """With all that it has started: it is the first of its process group."""
    while os.read(0, 1):
        pass
    os.killpg(os.getpgrp(), signal.SIGKILL)


if __name__ == "__main__":
    main()
