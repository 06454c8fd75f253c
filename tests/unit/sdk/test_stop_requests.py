"""Signals are requests; the program's own handlers still run, and workers outlive a stop of the group."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from trainmaster_sdk.stop_requests import StopRequests


@pytest.fixture(autouse=True)
def fixture_signals() -> Iterator[None]:
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGUSR1)}
    yield
    for number, was in before.items():
        signal.signal(number, was)


def test_signals_raise_flags_and_are_given_back() -> None:
    before = signal.getsignal(signal.SIGTERM)
    requests = StopRequests()
    requests.listen()
    os.kill(os.getpid(), signal.SIGUSR1)
    assert (requests.stop, requests.save) == (False, True)
    os.kill(os.getpid(), signal.SIGTERM)
    assert requests.stop
    requests.restore_signals(ignore_stop=False)
    assert signal.getsignal(signal.SIGTERM) == before


def test_the_programs_own_handler_is_called_too() -> None:
    called = []
    signal.signal(signal.SIGTERM, lambda number, _: called.append(number))
    requests = StopRequests()
    requests.listen()
    os.kill(os.getpid(), signal.SIGTERM)
    assert called == [signal.SIGTERM]
    assert requests.stop


def test_a_handler_that_came_later_is_left_alone() -> None:
    requests = StopRequests()
    requests.listen()
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    requests.restore_signals(ignore_stop=False)
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_IGN


@pytest.mark.parametrize(
    ("said", "stop", "save", "why"),
    [
        ({"ask": "stop", "why": "suspend", "grace_s": 30.0}, True, False, "suspend"),
        ({"ask": "save"}, False, True, None),
        ({"ask": "dance"}, False, False, None),
        ({"say": "hello"}, False, False, None),
    ],
)
def test_lines_are_wishes(said: dict[str, object], stop: bool, save: bool, why: str | None) -> None:
    requests = StopRequests()
    requests.take(said)
    assert (requests.stop, requests.save, requests.why) == (stop, save, why)


WORKER = r"""
import os, signal, sys, time
from trainmaster_sdk.stop_requests import StopRequests
requests = StopRequests()
requests.listen()
child = os.fork()
if child == 0:
    os.write(1, b"up\n")
    while True:
        time.sleep(0.01)
if sys.argv[1] == "own":
    os.kill(child, signal.SIGTERM)  # as multiprocessing ends its workers
else:
    while not requests.stop:
        time.sleep(0.01)
    for _ in range(150):  # the worker serves on, while the parent saves
        assert os.waitpid(child, os.WNOHANG) == (0, 0)
        time.sleep(0.01)
    os.kill(child, signal.SIGTERM)
print(os.WTERMSIG(os.waitpid(child, 0)[1]), flush=True)
"""


@pytest.mark.parametrize("how", ["own", "group"])
def test_a_worker_outlives_a_stop_of_the_group_but_obeys_its_parent(how: str) -> None:
    command = [sys.executable, "-c", WORKER, how]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, start_new_session=True
    ) as parent:
        try:
            if how == "group":
                assert parent.stdout is not None
                assert parent.stdout.readline() == "up\n"
                os.killpg(parent.pid, signal.SIGUSR1)
                os.killpg(parent.pid, signal.SIGTERM)
            said, _ = parent.communicate(timeout=60)
            assert said.split()[-1] == str(signal.SIGTERM.value)
            assert parent.returncode == 0
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(parent.pid, signal.SIGKILL)
