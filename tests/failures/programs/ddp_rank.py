# reason: shape-mismatch
"""Rank 1 of a data-parallel job gets a bad batch; rank 0 loses its connection in the all-reduce."""

import os
import sys

if "RANK" not in os.environ:
    from torch.distributed.run import main

    sys.exit(main(["--standalone", "--nproc-per-node=2", __file__]))

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 4))
for step in range(3):
    is_bad = dist.get_rank() == 1 and step == 2
    model(torch.randn(2, 5 if is_bad else 4)).sum().backward()
    print("step", step, flush=True)
