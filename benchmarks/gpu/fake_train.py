"""Stands in for train.py where TRAINMASTER_FAKE_GPUS plays the driver: the same options, no GPU.

A step takes a millisecond or two of sleeping; its weights are a digest that each step changes, so that a lost
or repeated step shows.
"""

import hashlib
import json
import os
import time

from benchmarks.gpu.train import GIB, StepTimes, parsed, say, wait_at, wants_more
from trainmaster.gpu import fake_driver

CONTEXT = GIB // 2
STEP_S = 0.002


def main() -> None:
    asked = parsed()
    share = os.environ.get("CUDA_MPS_PIPE_DIRECTORY")
    size = int(asked.fill_gib * GIB) + CONTEXT
    fake_driver.allocate(size, util_ppm=300_000, mps=bool(share))
    say(ready=os.getpid(), at=round(time.time(), 3), start_s=0.0, gpu_bytes=size)
    wait_at(asked.gate)
    taken = 0
    times, weights = StepTimes(), hashlib.sha256(str(asked.seed).encode())
    while times.steps < asked.steps and time.perf_counter() - times.began < asked.seconds:
        fake_driver.step(STEP_S)
        times.add(1)
        weights.update(str(times.steps).encode())
        if asked.greedy_after and wants_more(times.began, asked.greedy_after, taken):
            fake_driver.allocate(GIB)
            taken += 1
    found = times.found() | {"loss": 1.0 / times.steps, "weights": weights.hexdigest()}
    found |= {"resident_is_whole": True, "gpu_bytes": size}
    say(**found)
    if asked.out:
        asked.out.write_text(json.dumps(found) + "\n")


if __name__ == "__main__":
    main()
