"""The clock of a run's signs of life, and what its processes and GPUs use."""

from __future__ import annotations

import os
import selectors
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from trainmaster.engines.local import runfile
from trainmaster.engines.local.hang_watch import GpuMeter, HangWatch, ProcessMeter, RhythmClock
from trainmaster.engines.local.runfile import CgroupPlan, HangPlan
from trainmaster.engines.local.stack_dump import NOT_ALLOWED, NOT_INSTALLED, taken, text_of
from trainmaster.engines.local.worker_environment import Host, run_file
from trainmaster.failures.hang_rule import HangLimits
from trainmaster.failures.stacks import rank_sentences
from trainmaster.model.job import Run
from trainmaster.model.launch_spec import LaunchSpec, OnHang
from trainmaster.model.placement import Placement, Slice
from trainmaster.model.topology import parse_shorthand


def test_the_longest_silence_and_the_longest_step_are_learned() -> None:
    clock = RhythmClock(0.0)
    clock.sign(50.0)  # output before the first step: it starts
    clock.step(1, 60.0)
    clock.sign(63.0)
    clock.step(2, 70.0)
    clock.step(2, 75.0)  # the same step again is no news
    found = clock.rhythm(80.0)
    assert (found.steps, found.longest_step_ms, found.longest_silence_ms) == (2, 10_000, 7_000)
    assert (found.silent_ms, found.stepless_ms) == (10_000, 10_000)


def test_what_earlier_attempts_have_lived_through_is_known() -> None:
    assert RhythmClock(0.0, 240_000).rhythm(1.0).longest_ms == 240_000


def test_time_in_which_it_was_suspended_or_held_back_does_not_count() -> None:
    clock = RhythmClock(0.0)
    clock.step(1, 0.0)
    clock.pass_time(10.0, 90.0, pace=0)
    clock.pass_time(20.0, 90.0, pace=25)
    clock.pass_time(30.0, 90.0, pace=100)
    assert clock.rhythm(30.0).silent_ms == 12_500


def test_time_in_which_the_machine_stood_still_does_not_count() -> None:
    clock = RhythmClock(0.0)
    clock.pass_time(3_600.0, 90.0, pace=100)
    assert clock.rhythm(3_600.0).silent_ms == 90_000


def test_what_it_writes_because_it_is_told_to_end_is_not_a_sign_of_life() -> None:
    told: list[str] = []
    with selectors.DefaultSelector() as selector:
        watch = HangWatch(
            *("/nowhere", HangPlan(HangLimits(), restarts=True, known_ms=0), False, list),
            *(selector, set(), lambda word, _: told.append(word), lambda: None),
        )
        watch.step_done(1)
        watch.close()  # it hung, or is suspended
        time.sleep(0.02)
        watch.sign()
        watch.step_done(2)
    assert (watch.longest_ms, told) == (0, [])


def test_the_run_file_says_when_it_hangs_and_what_is_done_then(tmp_path: Path) -> None:
    limits = HangLimits(1, 2, 3)
    host = Host(parse_shorthand("1x1"), (), CgroupPlan(), hang_limits=limits)
    placement = Placement((Slice(0, 0),), 0)

    def plan(spec: LaunchSpec) -> HangPlan | None:
        file = run_file(Run("1", 1), placement, spec, host, str(tmp_path / "s"), 0)
        runfile.write(str(tmp_path), file)
        return runfile.read(str(tmp_path)).hang

    spec = LaunchSpec(("true",), "/", "", longest_silence_ms=4)
    assert plan(spec) == HangPlan(limits, known_ms=4)
    assert plan(replace(spec, on_hang=OnHang.RESTART)) == HangPlan(limits, True, 4)
    docker = replace(spec, prefix=("/bin/sh", "-c", "docker run x", "docker"))
    assert plan(docker) == HangPlan(limits, known_ms=4, sees_processes=False)
    assert plan(replace(spec, command=("python", "-m", "trainmaster_sdk.terminal"))) is None


PROGRAMS = {
    "computes": "while True: pass",
    "writes": "while True: out.write(bytes(1 << 20)); time.sleep(0.01)",
}


@pytest.mark.parametrize("code", PROGRAMS.values(), ids=PROGRAMS)
def test_a_process_that_computes_or_writes_is_busy_and_one_that_sleeps_is_not(code: str) -> None:
    code = f"import time; out = open('/dev/null', 'wb', 0)\n{code}"
    working = subprocess.Popen([sys.executable, "-S", "-c", code])
    sleeping = subprocess.Popen(["sleep", "600"])
    meter = ProcessMeter(lambda: [working.pid, sleeping.pid])
    other = ProcessMeter(lambda: [sleeping.pid])
    try:
        assert not meter.is_busy(time.monotonic())  # nothing is known before
        assert not other.is_busy(time.monotonic())
        for _ in range(100):
            time.sleep(0.3)
            if meter.is_busy(time.monotonic()):
                break
        else:
            raise AssertionError("it is never seen to work")
        assert not other.is_busy(time.monotonic())
    finally:
        for each in (working, sleeping):
            each.kill()
            each.wait()


def test_a_gpu_of_which_nothing_is_known_lately_may_be_busy() -> None:
    assert not GpuMeter(has_gpus=False).is_busy(0.0)
    meter = GpuMeter(has_gpus=True)
    assert meter.is_busy(0.0)
    meter.said(10_000, 0.0)
    assert not meter.is_busy(1.0)
    assert meter.is_busy(300.0)
    meter.said(1_000_000, 300.0)
    assert meter.is_busy(301.0)


@pytest.fixture
def asleep() -> Iterator[int]:
    """A Python program of rank 3."""
    code = "import time; print(flush=True); time.sleep(600)"
    env = {**os.environ, "RANK": "3"}
    process = subprocess.Popen([sys.executable, "-S", "-c", code], env=env, stdout=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.readline()
    yield process.pid
    process.kill()
    process.communicate()


def test_without_py_spy_proc_says_what_it_can(asleep: int) -> None:
    found, trouble = taken([asleep], None)
    assert trouble == NOT_INSTALLED
    (said,) = rank_sentences(found)
    assert said.startswith("Rank 3 (python")
    assert f"shows no Python stack: process {asleep} is " in said
    assert "No Python stacks: py-spy is not installed" in text_of(found, trouble)


DUMPED = """[{"pid": 7, "thread_id": 1, "thread_name": "MainThread", "os_thread_id": 7, "active": false,
"frames": [{"name": "main", "filename": "/home/ada/train.py", "line": 5, "short_filename": "train.py"}]}]"""
ANSWERS = {
    "stacks": (f"echo '{DUMPED}'", "", "Rank 3 waits in main (train.py:5)."),
    "not allowed": (
        "echo 'Permission Denied: Try again' >&2; exit 1",
        NOT_ALLOWED,
        "no Python stack",
    ),
    "failed": (
        "printf 'Error: Failed to find it\\n\\nStack backtrace:\\n 0: main' >&2; exit 1",
        "py-spy failed: Failed to find it",
        "no Python stack",
    ),
    "not JSON": (
        "echo hello",
        "py-spy failed: Expecting value: line 1 column 1 (char 0)",
        "no Python",
    ),
}


@pytest.mark.parametrize(("script", "trouble", "said"), ANSWERS.values(), ids=ANSWERS)
def test_what_py_spy_answers_is_read_and_its_trouble_told(
    script: str, trouble: str, said: str, asleep: int, tmp_path: Path
) -> None:
    spy = tmp_path / "py-spy"
    spy.write_text(f"#!/bin/sh\n{script}\n")
    spy.chmod(0o755)
    found, why = taken([asleep], str(spy))
    assert why == trouble
    assert said in rank_sentences(found)[0]
