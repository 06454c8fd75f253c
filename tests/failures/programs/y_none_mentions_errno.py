# reason: unknown
import sys

print("policy table: EACCES allowed, ENOSPC allowed, SIGKILL ignored")
sys.exit(8)
