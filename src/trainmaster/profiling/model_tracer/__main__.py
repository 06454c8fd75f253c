"""python -c BOOT FOLDER '{"what": "memory", "factory": "train.py:make_model", ...}' RESULT_FILE

tracer.py has BOOT.
"""

import sys

from .requests import main

sys.path.remove(sys.argv[1])  # whose other modules are not the user's
main(*sys.argv[2:])
