# reason: quota-exceeded
"""The user's quota is used up."""

import errno
import os

raise OSError(errno.EDQUOT, os.strerror(errno.EDQUOT), "/home/u/checkpoints/last.pt")
