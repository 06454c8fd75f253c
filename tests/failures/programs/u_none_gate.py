# reason: unknown
import sys

sys.exit("Gate failed: the drift detector raised 4 alarms")
