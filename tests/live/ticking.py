"""A job for crash tests: counts ticks, saves each one, and reports any second run of the same job.

Only the standard library. Its first rank counts, and holds a lock while it runs, so that a second run of
the same job at the same time is seen whatever any table says. It begins when all ranks are there, as gangs
do; the others follow until they are told to leave, or until the first is done. Now and then it says how
far it is, as programs with the SDK do.
"""

import json
import os
import pathlib
import signal
import socket
import sys
import time

from second_run import refuse_second_run

ticks, folder = int(sys.argv[1]), pathlib.Path(sys.argv[2])
job, attempt = os.environ["TRAINMASTER_JOB"], os.environ["TRAINMASTER_ATTEMPT"]
place = pathlib.Path(os.environ["TRAINMASTER_CHECKPOINT_DIR"])
stops = []
signal.signal(signal.SIGTERM, lambda *_: stops.append(1))


def tell(what: str) -> None:
    with (folder / "told.txt").open("a") as out:
        out.write(f"{job} {attempt} {os.getpid()} {what}\n")


def say(*lines: dict[str, object]) -> None:
    with socket.socket(socket.AF_UNIX) as supervisor:
        supervisor.connect(os.environ["TRAINMASTER_SOCKET"])
        for line in ({"say": "hello", "rank": 0}, *lines):
            supervisor.sendall(json.dumps(line).encode() + b"\n")


def is_here(rank: int) -> pathlib.Path:
    return folder / f"{job}.{attempt}.{rank}.here"


def leave() -> None:
    tell("leaves")
    sys.exit(0)


if os.environ["RANK"] != "0":
    is_here(int(os.environ["RANK"])).touch()
    while not stops and not (place / "over").exists():
        time.sleep(0.05)
    if not stops:  # on its way out Python has no handler any more: what is left is the end
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    sys.exit(0)

lock = refuse_second_run(folder / f"{job}.lock", tell)

place.mkdir(parents=True, exist_ok=True)
count = int((place / "ticks").read_text()) if (place / "ticks").exists() else 0
tell("begins")
while not all(is_here(rank).exists() for rank in range(1, int(os.environ["WORLD_SIZE"]))):
    if stops:
        leave()
    time.sleep(0.01)
while count < ticks:
    if stops:
        leave()
    time.sleep(0.05)
    count += 1
    (place / "ticks.new").write_text(str(count))
    (place / "ticks.new").replace(place / "ticks")
    if count % 8 == 0:
        say({"say": "progress", "step": count, "total_steps": ticks, "loss": 1 / count})
signal.signal(signal.SIGTERM, signal.SIG_IGN)  # too late to leave: what follows is the end
is_prerun = "TRAINMASTER_PRERUN" in os.environ
tell("tries" if is_prerun else "ends")
if not is_prerun:
    with (folder / "nonces.txt").open("a") as out:
        out.write(f"{job} {os.environ.get('NONCE', '')}\n")
say({"say": "done"})  # so that nobody takes this end for a leaving
(place / "over").touch()
