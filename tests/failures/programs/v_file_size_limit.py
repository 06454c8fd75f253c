# reason: time-limit
import resource
import tempfile

resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, 1 << 16))
with tempfile.TemporaryFile() as out:
    out.write(b"x" * (1 << 20))
