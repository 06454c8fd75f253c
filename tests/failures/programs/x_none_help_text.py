# reason: unknown
import sys

print(
    "hint: if you see 'No space left on device', set TMPDIR; if 'Connection refused', start the server"
)
print("hint: CUDA out of memory. Tried to allocate 2.00 GiB means that the batch is too large")
sys.exit(6)
