"""The loop that the programs of this folder share: train for so long, or so many steps, and say what it took.

What a user would not put into the arguments is in the environment: ZERO_SECONDS or ZERO_STEPS, and ZERO_OUT
for the result. Where TRAINMASTER_FAKE_GPUS plays the driver, memory is only said, by sizes that a program
states.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

GIB, MIB = 1 << 30, 1 << 20
WARM_UP = 3
"""Steps before the time counts: the first ones choose kernels."""
FAKE_STEP_S = 0.01


@dataclass(frozen=True)
class FakeSize:
    """What a program has on a played GPU: GiB, and GiB for each sample of a batch."""

    fixed_gib: float
    sample_gib: float


def parser(description: str) -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(description=description)
    made.add_argument("--batch", type=int, default=64)
    return made


def say(**what: object) -> None:
    print(json.dumps(what), flush=True)


def train(
    make_step: Callable[[Any], Callable[[], Any]],
    fake: FakeSize,
    batch: int,
    *,
    late_gib: float = 0.0,
) -> None:
    """Train by the steps that `make_step(torch)` makes; half-way, take so much more memory and keep it."""
    born = time.perf_counter()
    if os.environ.get("TRAINMASTER_FAKE_GPUS"):
        step, more, peak = _played(fake, batch)
    else:
        step, more, peak = _real(make_step)
    for _ in range(WARM_UP):
        step()
    say(ready=os.getpid(), start_s=round(time.perf_counter() - born, 2))
    most, seconds = (
        int(os.environ.get("ZERO_STEPS", "0")),
        float(os.environ.get("ZERO_SECONDS", "0")),
    )
    began = said = time.perf_counter()
    steps, is_late = 0, False
    while steps < most if most else time.perf_counter() - began < seconds:
        step()
        steps += 1
        now = time.perf_counter()
        part = steps / most if most else (now - began) / seconds
        if late_gib and not is_late and part >= 0.5:
            is_late = True
            more(late_gib)
        if now - said >= 1.0:
            said = now
            say(step=steps, at_s=round(now - began, 2))
    wall_s = time.perf_counter() - began
    found = {"steps": steps, "wall_s": round(wall_s, 3), "start_s": round(began - born, 2)}
    found |= peak()
    say(**found)
    if out := os.environ.get("ZERO_OUT"):
        Path(out).write_text(json.dumps(found) + "\n")


Played = tuple[Callable[[], Any], Callable[[float], Any], Callable[[], dict[str, object]]]


def _real(make_step: Callable[[Any], Callable[[], Any]]) -> Played:
    import torch

    torch.manual_seed(1)
    one = make_step(torch)
    kept = []

    def step() -> None:
        one()
        torch.cuda.synchronize()

    def more(gib: float) -> None:
        kept.append(torch.zeros(int(gib * GIB) // 4, device="cuda"))

    def peak() -> dict[str, object]:
        return {
            "reserved_bytes": torch.cuda.max_memory_reserved(),
            "allocated_bytes": torch.cuda.max_memory_allocated(),
        }

    return step, more, peak


def _played(fake: FakeSize, batch: int) -> Played:
    import trainmaster_sdk
    from trainmaster.gpu import fake_driver

    taken = [int((fake.fixed_gib + fake.sample_gib * batch) * GIB)]
    fake_driver.allocate(taken[0], util_ppm=300_000)

    def more(gib: float) -> None:
        fake_driver.allocate(int(gib * GIB))
        taken.append(int(gib * GIB))

    session = trainmaster_sdk.run().__enter__()  # counts steps, as is done for those of a real one
    steps = count(1)

    def step() -> None:
        fake_driver.step(FAKE_STEP_S)
        session.progress(step=next(steps))

    return step, more, lambda: {"reserved_bytes": sum(taken)}
