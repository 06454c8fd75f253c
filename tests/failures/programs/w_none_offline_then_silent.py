# reason: unknown
import logging
import sys
import urllib.request

logging.basicConfig()
try:
    urllib.request.urlopen("http://127.0.0.1:9/track", timeout=2)
except OSError:
    logging.exception("tracker not reached, running offline")
print("training finished")
print("writing the model card")
sys.exit(4)
