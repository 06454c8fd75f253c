"""Processes that run trials: none grows with every trial, and what one dies of is told."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from weakref import WeakSet

import psutil

from trainmaster.evaluation.process_pool import COLLECT_EVERY, spread


class Ring:
    """Something that only a search for cycles can free."""

    def __init__(self) -> None:
        self.itself = self


LEFT: WeakSet[Ring] = WeakSet()


def leave_a_ring(piece: int) -> int:
    """Leaves a ring among the old things, as a simulation does; how many earlier ones are there?"""
    before = len(LEFT)
    LEFT.add(Ring())
    gc.freeze()
    gc.unfreeze()
    return before


def test_what_pieces_leave_behind_is_freed_after_a_few_of_them() -> None:
    found = [done.result for done in spread(leave_a_ring, range(2 * COLLECT_EVERY + 1), 1)]
    assert max(each or 0 for each in found) < COLLECT_EVERY


def die(piece: int) -> int:
    if piece == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return piece


def test_a_process_that_dies_is_told_with_its_piece_and_the_others_go_on() -> None:
    done = {each.place: each for each in spread(die, [0, 1, 2], 1)}
    assert (done[0].result, done[2].result) == (0, 2)
    assert done[1].result is None
    assert "its process ended with" in (done[1].error or "")


SLOW_TO_START = """
import os, time
from pathlib import Path
from trainmaster.evaluation.process_pool import spread

def work(piece):
    return piece

if __name__ == "__main__":
    try:
        list(spread(work, [1, 2, 3], 2))
    except KeyboardInterrupt:
        print("interrupted")
else:
    Path(__file__).with_name(f"started-{os.getpid()}").touch()
    time.sleep(20)
"""


def test_ctrl_c_while_processes_start_is_the_parents_alone(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(SLOW_TO_START)
    run = subprocess.Popen(
        [sys.executable, str(program)],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    end = time.monotonic() + 30
    while len(started := list(tmp_path.glob("started-*"))) < 2 and time.monotonic() < end:
        time.sleep(0.01)
    os.killpg(run.pid, signal.SIGINT)
    assert run.communicate(timeout=60) == ("interrupted\n", "")
    assert len(started) == 2
    for each in started:
        assert not psutil.pid_exists(int(each.name.removeprefix("started-")))
