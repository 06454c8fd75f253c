# reason: file-limit
import resource
import tempfile

resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
shards = [tempfile.TemporaryFile() for _ in range(200)]
