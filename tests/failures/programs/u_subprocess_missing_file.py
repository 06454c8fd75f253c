# reason: missing-file
import subprocess
import sys

program = "with open('/data/train/part-0001.jsonl') as f:\n    print(sum(1 for _ in f))"
subprocess.run([sys.executable, "-S", "-c", program], check=True)
