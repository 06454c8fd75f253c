# reason: permission-error
import os
import subprocess
import tempfile

path = os.path.join(tempfile.mkdtemp(), "prepare.sh")
open(path, "w").write("#!/bin/sh\necho hi\n")
subprocess.run([path], check=True)
