# reason: shape-mismatch
import logging

import torch

logging.basicConfig(level=logging.INFO)
log = logging.getLogger("train")
try:
    open("/data/optional_cache.bin")
except OSError:
    log.exception("no cache, going on without")
log.info("epoch 1 started")
print("loading data...")
torch.cat([torch.ones(2, 3), torch.ones(2, 4)])
