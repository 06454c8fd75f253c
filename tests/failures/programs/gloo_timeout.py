# reason: nccl-timeout
"""One rank waits in an all-reduce for one that sleeps."""

import os
import time
from datetime import timedelta

import torch
import torch.distributed as dist

store = f"/tmp/gloo-timeout-{os.getpid()}"
child = os.fork()
rank = 1 if child == 0 else 0
dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=2)
group = dist.new_group([0, 1], timeout=timedelta(seconds=1))
if rank == 1:
    time.sleep(60)
try:
    dist.all_reduce(torch.ones(1), group=group)
finally:
    os.kill(child, 9)
    os.unlink(store)
