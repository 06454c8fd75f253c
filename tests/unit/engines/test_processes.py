"""What is read of other processes."""

from __future__ import annotations

import os
import subprocess
import sys

from trainmaster.engines.local.processes import variables_of


def test_variables_that_are_not_text_are_read_all_the_same() -> None:
    env = {b"TM_ONE": b"\xff.1", b"TM_TWO": b"/tmp/x", b"PATH": os.fsencode(os.environ["PATH"])}
    wait = "import sys; print(flush=True); sys.stdin.read()"
    with subprocess.Popen(
        [sys.executable, "-S", "-c", wait], env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        assert variables_of(process.pid, ("TM_ONE", "TM_TWO")) == ("\ufffd.1", "/tmp/x")
        assert variables_of(process.pid, ("TM_ONE", "TM_THREE")) is None
        process.communicate()
