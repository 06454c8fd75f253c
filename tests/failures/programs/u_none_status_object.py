# reason: unknown
import json
import sys

print(json.dumps({"status": "error", "permission": "granted", "timeout": 30, "missing": []}))
sys.exit(9)
