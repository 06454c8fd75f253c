"""MPS daemons: started once, found again, started again, ended; with a program that plays NVIDIA's."""

from __future__ import annotations

import os
import signal
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from trainmaster.gpu import mps
from trainmaster.gpu.mps import MpsDaemons, MpsError
from trainmaster.model.units import GIB

PROGRAM = str(Path(__file__).parents[2] / "fixtures" / "mps" / mps.CONTROL)
ONE, OTHER = "GPU-1", "GPU-2"


@pytest.fixture
def daemons(tmp_path: Path) -> Iterator[MpsDaemons]:
    found = MpsDaemons(tmp_path / "mps", tmp_path / "s", PROGRAM)
    yield found
    found.tend(())
    assert not found.known()


def said(daemons: MpsDaemons, uuid: str) -> str:
    return (daemons.place(uuid).logs / "control.log").read_text()


def test_each_gpu_has_a_daemon_of_its_own_that_is_started_once(daemons: MpsDaemons) -> None:
    first, other = daemons.ensure(ONE), daemons.ensure(OTHER)
    pids = daemons.pid(ONE), daemons.pid(OTHER)
    assert None not in pids
    assert pids[0] != pids[1]
    assert first.pipes != other.pipes
    assert f"CUDA_VISIBLE_DEVICES={ONE}\n" in said(daemons, ONE)
    assert daemons.ensure(ONE) == first
    assert daemons.pid(ONE) == pids[0]
    assert stat.S_IMODE(first.pipes.stat().st_mode) == 0o700
    assert daemons.ask(ONE, "get_default_active_thread_percentage").strip() == "100.0"


def test_the_next_manager_finds_it_again_even_without_its_pid(
    daemons: MpsDaemons, tmp_path: Path
) -> None:
    daemons.ensure(ONE)
    again = MpsDaemons(tmp_path / "mps", tmp_path / "s", PROGRAM)
    (again.place(ONE).logs / mps.PID).write_text("1")  # of a process that is not ours
    assert again.known() == [ONE]
    assert again.pid(ONE) == daemons.pid(ONE)
    again.ensure(ONE)
    assert said(daemons, ONE).count("Starting control daemon") == 1


def test_a_daemon_that_died_comes_back_only_while_it_is_used(daemons: MpsDaemons) -> None:
    for uuid in (ONE, OTHER):
        daemons.ensure(uuid)
        pid = daemons.pid(uuid)
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
    mps._until(lambda: daemons.pid(ONE) is None and daemons.pid(OTHER) is None)
    daemons.tend({ONE})
    assert daemons.pid(ONE) is not None
    assert daemons.pid(OTHER) is None
    assert daemons.known() == [ONE]


def test_a_daemon_without_clients_quits_and_leaves_only_its_logs(daemons: MpsDaemons) -> None:
    place = daemons.ensure(ONE)
    daemons.tend({OTHER})
    assert daemons.pid(ONE) is None
    assert not place.pipes.exists()
    assert "NEW UI COMMAND: quit" in said(daemons, ONE)


def test_one_that_does_not_answer_is_killed(
    daemons: MpsDaemons, monkeypatch: pytest.MonkeyPatch
) -> None:
    daemons.ensure(ONE)
    pid = daemons.pid(ONE)
    assert pid is not None
    monkeypatch.setattr(mps, "ANSWER_S", 0.3)
    os.kill(pid, signal.SIGSTOP)
    daemons.tend(())
    mps._until(lambda: daemons.pid(ONE) is None)
    assert daemons.pid(ONE) is None


def test_why_it_does_not_start_is_told_until_it_does(daemons: MpsDaemons) -> None:
    refuse = daemons.place(ONE).logs / "refuse"
    refuse.parent.mkdir(parents=True)
    refuse.touch()
    with pytest.raises(MpsError, match="does not start for GPU-1: MPS is not supported"):
        daemons.ensure(ONE)
    assert ONE in daemons.troubles
    refuse.unlink()
    daemons.ensure(ONE)
    assert not daemons.troubles


@pytest.mark.parametrize(
    ("share", "memory", "threads", "limit"),
    [
        (1000, 80 * GIB, "100", "0=81920M"),
        (500, 8 * GIB, "100", "0=8192M"),
        (250, 1, "50", "0=1M"),
        (125, GIB + 1, "25", "0=1025M"),
        (1, 0, "1", None),
    ],
)
def test_limits_follow_the_share(share: int, memory: int, threads: str, limit: str | None) -> None:
    found = mps.limits(share, memory)
    assert found[mps.THREADS] == threads
    assert found.get(mps.MEMORY) == limit
