# reason: unknown
import sys

for attempt in range(3):
    print(f"attempt {attempt}: Connection refused, retrying in 0 s")
print("connected to the feature store")
print("rows 100000")
sys.exit(7)
