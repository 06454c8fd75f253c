# reason: incorrect-input
import gzip
import io

whole = gzip.compress(b"x" * 100000)
with gzip.open(io.BytesIO(whole[:60])) as file:
    file.read()
