# reason: unknown
import subprocess

subprocess.run(["sleep", "5"], timeout=0.2)
