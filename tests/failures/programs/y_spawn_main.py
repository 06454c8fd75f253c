# reason: semantic-error
import subprocess
import sys
import tempfile

with tempfile.NamedTemporaryFile("w", suffix=".py", delete=False) as file:
    file.write(
        "import multiprocessing as m\nm.set_start_method('spawn')\nm.Process(target=print).start()\n"
    )
sys.exit(subprocess.run([sys.executable, "-S", file.name]).returncode or 1)
