"""A job for crash tests: counts ticks, saves each one, and tells on whoever runs beside it.

Only the standard library. It holds a lock while it runs, so that a second run of the same job at the
same time is seen whatever any table says.
"""

import fcntl
import os
import pathlib
import signal
import socket
import sys
import time

ticks, folder = int(sys.argv[1]), pathlib.Path(sys.argv[2])
job, attempt = os.environ["TRAINMASTER_JOB"], os.environ["TRAINMASTER_ATTEMPT"]


def tell(what: str) -> None:
    with (folder / "told.txt").open("a") as out:
        out.write(f"{job} {attempt} {os.getpid()} {what}\n")


lock = (folder / f"{job}.lock").open("w")
try:
    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
except OSError:
    tell("TWICE")
    sys.exit(9)

place = pathlib.Path(os.environ["TRAINMASTER_CHECKPOINT_DIR"])
place.mkdir(parents=True, exist_ok=True)
stops = []
signal.signal(signal.SIGTERM, lambda *_: stops.append(1))
count = int((place / "ticks").read_text()) if (place / "ticks").exists() else 0
tell("begins")
while count < ticks:
    if stops:
        tell("leaves")
        sys.exit(0)
    time.sleep(0.05)
    count += 1
    (place / "ticks.new").write_text(str(count))
    (place / "ticks.new").replace(place / "ticks")
signal.signal(signal.SIGTERM, signal.SIG_IGN)  # too late to leave: what follows is the end
tell("ends")
with socket.socket(socket.AF_UNIX) as supervisor:  # so that nobody takes this end for a leaving
    supervisor.connect(os.environ["TRAINMASTER_SOCKET"])
    supervisor.sendall(b'{"say": "hello", "rank": 0}\n{"say": "done"}\n')
