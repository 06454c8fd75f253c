"""python -c BOOT FOLDER '{"factory": "train.py:make_model", ...}' RESULT_FILE; memory_trace.py has BOOT."""

import sys

from .user_program import main

sys.path.remove(sys.argv[1])  # whose other modules are not the user's
main(*sys.argv[2:])
