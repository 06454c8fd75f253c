# reason: unknown
import logging


class ReviewMissing(Exception):
    pass


logging.basicConfig()
try:
    open("/etc/trainer/notes.md")
except OSError:
    logging.warning("notes are not there", exc_info=True)
print("building the report")
print("asking for a review")
raise ReviewMissing("nobody has reviewed model card 12")
