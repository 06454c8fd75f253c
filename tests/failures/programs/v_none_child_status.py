# reason: unknown
import subprocess

subprocess.run(["bash", "-c", "echo stage two; exit 3"], check=True)
