# reason: unknown
import sys

for step in range(5):
    if step == 2:
        print(
            "caught: CUDA out of memory. Tried to allocate 2.00 GiB; batch size halved to 16, going on"
        )
    print(f"step {step} loss {1 / (step + 1):.3f}", flush=True)
sys.exit(3)
