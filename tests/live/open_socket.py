"""`trainmaster` with a Unix socket at the path that is given first, open to every user of the machine.

    python -m tests.live.open_socket /tmp/x/manager.sock up --data …

Like `up --system`, but beside other managers of this machine and without accounts for jobs to run as.
"""

from __future__ import annotations

import sys
from pathlib import Path

from trainmaster.api.local_socket import SYSTEM_MODE
from trainmaster.cli.main import run
from trainmaster.cli.support import manager

if __name__ == "__main__":
    path = Path(sys.argv.pop(1))
    manager.own_path = lambda _: path  # type: ignore[attr-defined]
    manager.OWN_MODE = SYSTEM_MODE  # type: ignore[attr-defined]
    run()
