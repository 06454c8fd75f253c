"""Runs tests that failed beside others once more, alone: those that pass then are named, the others fail.

    python -m tests.second_try [tests.ray]

Live tests watch real processes on a busy machine, and one of ten thousand can lose a race that says nothing
of the code. A test that is wrong, or code that is, fails both times. Many failures are not tried again.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

FAILED = Path(".pytest_cache/v/cache/lastfailed")
MOST = 10


def main(runner: str) -> int:
    names = sorted(json.loads(FAILED.read_text())) if FAILED.exists() else []
    if not 0 < len(names) <= MOST:
        return 1
    print(f"\nOnce more, alone: {', '.join(names)}", flush=True)
    command = (sys.executable, "-m", runner, "--quiet", "-n0", *names)
    code = subprocess.run(command, check=False).returncode
    if code == 0:
        print(f"Failed beside other tests and passed alone: {', '.join(names)}", flush=True)
    return code


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:] or ["pytest"]))
