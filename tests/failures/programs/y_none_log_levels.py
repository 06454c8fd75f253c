# reason: unknown
import logging
import sys

logging.basicConfig(level=logging.DEBUG, format="%(levelname)s %(message)s")
logging.debug("No such file or directory is not an error here")
logging.info("CUDA out of memory guard armed")
logging.critical("halting: operator request 77")
sys.exit(3)
