"""Runs the model tracer in a process of its own, with the Python of the training environment.

What the module prints, allocates or breaks when it is imported stays in that process.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

BOOT = (
    "import runpy, sys; sys.path.insert(0, sys.argv[1]);"
    " runpy.run_module('model_tracer', run_name='__main__')"
)
"""Runs the package beside this file where Trainmaster is not installed."""


class CannotTrace(Exception):
    """One sentence that says why, and what to do."""


def traced(request: Mapping[str, object], python: str, *, sees_gpus: bool) -> dict[str, Any]:
    """The tracer's answer to a request."""
    with tempfile.TemporaryDirectory() as folder:
        result = Path(folder, "trace.json")
        folder_of_tracer = str(Path(__file__).parent)
        command = [python, "-c", BOOT, folder_of_tracer, json.dumps(request), str(result)]
        hidden = {} if sees_gpus else {"CUDA_VISIBLE_DEVICES": ""}
        try:
            ended = subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                errors="replace",
                env=os.environ | hidden,
                check=False,
            )
        except OSError as error:
            raise CannotTrace(
                f"cannot start {python} ({error.strerror}): name a Python with --python"
            ) from None
        if not result.exists() or not result.stat().st_size:
            raise CannotTrace(_death(ended, python, has_begun=result.exists()))
        answer: dict[str, Any] = json.loads(result.read_text("utf-8"))
    if "trouble" in answer:
        raise CannotTrace(answer["trouble"])
    return answer


def _death(ended: subprocess.CompletedProcess[str], python: str, *, has_begun: bool) -> str:
    if "No module named 'torch'" in ended.stderr:
        return f"{python} has no torch: name the Python of the training environment with --python"
    lines = ended.stderr.strip().splitlines() or [f"exit code {ended.returncode}"]
    if not has_begun:
        return f"{python} does not run the trace ({lines[-1][:200]}): name a Python with --python"
    if ended.returncode == -signal.SIGKILL:
        return (
            "the process that traces the model was killed, as when it takes too much memory: keep what is"
            " large out of the module's top level and of the function"
        )
    return f"the process that traces the model died ({lines[-1][:200]}): try the module on its own"
