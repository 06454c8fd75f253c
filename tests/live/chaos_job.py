"""A job for the fault run: counts ticks with a checkpoint, and leaves its nonce when it has really ended.

    python chaos_job.py TICKS FOLDER NONCE

Only the standard library. It says when a second run of the same job goes on at the same time, and when it is
handed a checkpoint of another job. A disk that is full makes it wait.
"""

import os
import pathlib
import signal
import sys
import time

from second_run import refuse_second_run

ticks, folder, nonce = int(sys.argv[1]), pathlib.Path(sys.argv[2]), sys.argv[3]
place = pathlib.Path(os.environ["TRAINMASTER_CHECKPOINT_DIR"])
stops = []
signal.signal(signal.SIGTERM, lambda *_: stops.append(1))


def tell(what: str) -> None:
    with (folder / "told.txt").open("a") as out:
        out.write(f"{nonce} {os.environ['TRAINMASTER_RUN']} {what}\n")


def save(count: int) -> None:
    while True:
        try:
            place.mkdir(parents=True, exist_ok=True)
            (place / "new").write_text(f"{nonce} {count}")
            (place / "new").replace(place / "ticks")
            return
        except OSError:
            if stops:
                sys.exit(1)
            time.sleep(0.1)


lock = refuse_second_run(folder / f"{nonce}.lock", tell)
count = 0
if (place / "ticks").exists():
    owner, _, text = (place / "ticks").read_text().partition(" ")
    if owner != nonce:
        tell(f"FOREIGN {owner}")
        sys.exit(9)
    count = int(text)
while count < ticks:
    if stops:
        sys.exit(0)  # saved at every tick: it goes on from there
    time.sleep(0.1)
    count += 1
    save(count)
signal.signal(signal.SIGTERM, signal.SIG_IGN)  # too late to leave: what follows is the end
if "TRAINMASTER_PRERUN" in os.environ:
    sys.exit(0)  # it has shown that it works; its end is still to come
done = folder / f"{nonce}.done"
if not done.exists():
    tell("ends")
    done.touch()
