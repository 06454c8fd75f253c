"""A job of the reality benchmark: a training loop whose steps wait for a device that is not there.

`python -S reality_job.py STEPS STEP_MS`. A step sleeps in short ticks, as a loop does that waits for its
GPU, so that eight slots can be busy on two cores. It speaks through the
SDK, goes on from its checkpoint, and notes in its log when each attempt began to train and when it stopped.
"""

import json
import os
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))

import trainmaster_sdk

TICK_MS = 10
QUEUED_MS = 20
REPORT_EVERY = 20


class Device:
    """Works through its queue, tick by tick, while the host may be late.

    As a GPU does: launches run ahead of it, so that a host that is late by less than the queue costs
    nothing. Beyond that it stands idle, and while its program is frozen it does nothing but the queue.
    """

    def __init__(self) -> None:
        self._due = time.monotonic()

    def work(self, step_ms: int) -> None:
        for _ in range(step_ms // TICK_MS):
            now = time.monotonic()
            self._due = max(self._due, now - QUEUED_MS / 1000) + TICK_MS / 1000
            time.sleep(max(0.0, self._due - now))


def note(what: str, step: int) -> None:
    """A line of the log, for the benchmark."""
    said = {"what": what, "at_ms": time.time_ns() // 1_000_000, "step": step}
    print(json.dumps(said | {"rank": int(os.environ["RANK"])}), flush=True)


def train(steps: int, step_ms: int) -> None:
    with trainmaster_sdk.run(keep=1) as tm:
        found = tm.load()
        step = 0 if found is None else int(found.state["step"])
        device = Device()
        note("training", step)
        while step < steps and not tm.should_stop():
            device.work(step_ms)
            step += 1
            if step % REPORT_EVERY == 0:
                tm.progress(step)
        note("stopped", step)
        if step < steps:
            tm.save({"step": step}, step)
        else:
            tm.finish()


if __name__ == "__main__":
    train(int(sys.argv[1]), int(sys.argv[2]))
