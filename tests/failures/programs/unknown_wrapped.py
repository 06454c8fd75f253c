# reason: unknown
"""A launcher whose child ends without a word."""

import subprocess
import sys

subprocess.run([sys.executable, "-c", "raise SystemExit(9)"], check=True)
