# reason: bad-arguments
import os

data = os.environ["TM_UNSEEN_DATA_DIR"]
