# reason: semantic-error
import logging
import sys

logger = logging.getLogger("trainer")
logging.basicConfig(format="[%(asctime)s][%(name)s][%(levelname)s] - %(message)s")
try:
    {"loss": 1}["losses"]
except Exception as error:
    logger.error("Training failed: %s", error, exc_info=True)
    sys.exit(1)
