"""Times all-reduces of several sizes as one of several ranks: a program of its own that needs torch alone.

`python link_meter.py REQUEST RESULT`: rank 0 writes its times into the file RESULT, with what each rank said
of itself; every rank that fails writes one sentence instead.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from datetime import timedelta
from typing import Any

ROUNDS = 3
MOST_TIMES = 20
"""All-reduces in a round, at most: they follow each other without a barrier, whose end ranks see apart."""


def measure(request: dict[str, Any]) -> dict[str, Any]:
    """Seconds of an all-reduce of each size."""
    import torch
    import torch.distributed as dist

    gpu = request["gpu"]
    if gpu is not None:
        torch.cuda.set_device(gpu)
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo" if gpu is None else "nccl",
        init_method=request["meet"],
        rank=request["rank"],
        world_size=request["ranks"],
        timeout=timedelta(seconds=request["patience_s"]),
    )
    own: list[Any] = [None] * request["ranks"]
    dist.all_gather_object(own, request["own"])
    device = "cpu" if gpu is None else f"cuda:{gpu}"
    times = {
        size: _all_reduce_s(torch, size, device, request["seconds"]) for size in request["sizes"]
    }
    dist.barrier()
    dist.destroy_process_group()
    return {"times": times, "own": own}


def _all_reduce_s(torch: Any, size: int, device: str, seconds: float) -> float:
    data = torch.zeros(size // 4, device=device)

    def spent_s(times: int) -> float:
        began = time.perf_counter()
        for _ in range(times):
            torch.distributed.all_reduce(data)
        if device != "cpu":
            torch.cuda.synchronize()
        return (time.perf_counter() - began) / times

    spent_s(2)
    times = torch.tensor(
        [max(1, min(MOST_TIMES, int(seconds / ROUNDS / spent_s(1))))], device=device
    )
    torch.distributed.broadcast(times, 0)
    return statistics.median(spent_s(int(times)) for _ in range(ROUNDS))


def main(request: str, result: str) -> None:
    said = json.loads(request)
    try:
        found = measure(said)
    except Exception as error:
        lines = str(error).strip().splitlines() or [""]
        found = {"trouble": f"{type(error).__name__}: {lines[0][:300]}"}
    if said["rank"] == 0 or "trouble" in found:
        with open(result, "w", encoding="utf-8") as file:
            json.dump(found, file)


if __name__ == "__main__":
    sys.path[:1] = []  # this file's folder, whose other files are no modules of the user's
    main(*sys.argv[1:])
