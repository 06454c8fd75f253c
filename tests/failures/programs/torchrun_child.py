# reason: semantic-error
"""Rank 1 of a torchrun job has a bug; rank 0 only suffers from it."""

import os
import sys
import time

if "RANK" not in os.environ:
    from torch.distributed.run import main

    sys.exit(main(["--standalone", "--nproc-per-node=2", __file__]))
if os.environ["RANK"] == "1":
    batch = {"input": 1}
    print(batch["labels"])
time.sleep(30)
