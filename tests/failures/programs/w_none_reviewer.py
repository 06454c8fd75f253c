# reason: unknown
import logging
import sys

logging.basicConfig(level=logging.INFO)
logging.info("evaluation done, 0 errors")
logging.error("Run aborted by reviewer, see ticket 123")
sys.exit(1)
