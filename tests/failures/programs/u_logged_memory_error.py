# reason: host-out-of-memory
import logging
import resource
import sys

logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
resource.setrlimit(resource.RLIMIT_AS, (8 << 30, 8 << 30))
try:
    cache = [bytearray(1 << 34)]
except Exception:
    logging.exception("run failed")
    sys.exit(1)
