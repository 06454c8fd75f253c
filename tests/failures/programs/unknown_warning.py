# reason: unknown
"""Warns of a full disk, and ends for another reason."""

import logging
import sys

logging.warning("[Errno 28] No space left on device: the cache is not written")
print("validation accuracy is below the bar of this pipeline")
sys.exit(5)
