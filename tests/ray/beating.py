"""A rank of a job that writes down when it lives: a line at its begin, some 20 a second, and one at its end.

    python -S beating.py FOLDER

What it writes is the tests' own evidence, whatever any journal says. It ends well once FOLDER/JOB.done is
there, and when it is told to stop. Only the standard library.
"""

import os
import pathlib
import signal
import sys
import time

folder = pathlib.Path(sys.argv[1])
job, attempt = os.environ["TRAINMASTER_JOB"], os.environ["TRAINMASTER_ATTEMPT"]
name = f"{job}.{attempt}.{os.environ['RANK']}.{os.getpid()}"
stops: list[int] = []
signal.signal(signal.SIGTERM, lambda *_: stops.append(1))

with (folder / name).open("a", buffering=1) as out:

    def beat(what: str) -> None:
        out.write(f"{time.monotonic():.3f} {what}\n")

    beat("begins")
    while not stops and not (folder / f"{job}.done").exists():
        time.sleep(0.05)
        beat("lives")
    beat("stops" if stops else "ends")
