# reason: disk-full
import errno
import os


def save():
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "/scratch/run/ckpt-100.pt")


try:
    save()
except OSError as error:
    print(f"ERROR saving checkpoint: {error}")
    raise
