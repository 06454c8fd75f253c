"""Runs short programs of ours on this machine, each in a process that is ended after its time."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Sequence

from trainmaster.engines.local import processes
from trainmaster.engines.protocol import Probed

END_S = 2.0
"""How long a process that was killed is waited for."""


async def probe(words: Sequence[str], limit_s: float) -> Probed:
    """What `python -m` and these words say, and with which code they end."""
    return await ended((sys.executable, "-P", "-m", *words), limit_s)


async def ended(command: Sequence[str], limit_s: float) -> Probed:
    """How a command ends; with what it has started it is killed after so long."""
    process = await asyncio.create_subprocess_exec(
        *command,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        env=os.environ | {"PYTHONPATH": processes.python_path()},
        start_new_session=True,
    )
    try:
        async with asyncio.timeout(limit_s):
            output, _ = await process.communicate()
        return Probed(process.returncode, output)
    except TimeoutError:
        return Probed(None)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        with contextlib.suppress(TimeoutError):  # it hangs in the kernel
            await asyncio.wait_for(process.wait(), END_S)
