# reason: unknown
import sys

for size in (1, 2, 3):
    print(f"grid {size}: inf norm 0.3, nan mask off, max memory 3 GB")
sys.exit(1)
