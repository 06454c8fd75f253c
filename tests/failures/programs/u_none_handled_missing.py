# reason: unknown
import logging
import sys

logging.basicConfig(level=logging.INFO)
try:
    open("/etc/trainer/defaults.toml")
except FileNotFoundError:
    logging.exception("no defaults, going on without")
for step in range(20):
    logging.info("step %d loss %.3f", step, 2 / (step + 1))
sys.exit(1)
