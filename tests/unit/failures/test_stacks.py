"""Stacks of a hung run's processes, in one sentence for each rank."""

from __future__ import annotations

from dataclasses import replace

from trainmaster.failures.stacks import Frame, ProcessStack, Thread, rank_sentences

TORCH = "/env/lib/python3.11/site-packages/torch"
ALL_REDUCE = (
    Frame("all_reduce", f"{TORCH}/distributed/distributed_c10d.py", 3252),
    Frame("_exception_logger.<locals>.wrapper", f"{TORCH}/distributed/c10d_logger.py", 83),
    Frame("train", "/home/ada/train.py", 41),
    Frame("<module>", "/home/ada/train.py", 60),
)
SLEEPS = (Frame("main", "/home/ada/train.py", 27),)
JOINS = (
    Frame("Thread._wait_for_tstate_lock", "/usr/lib/python3.11/threading.py", 1116),
    Frame("Thread.join", "/usr/lib/python3.11/threading.py", 1100),
    Frame("main", "/home/ada/train.py", 50),
)
LAUNCHER = (
    Frame("SubprocessContext._poll", f"{TORCH}/distributed/elastic/multiprocessing/api.py", 1),
    Frame("run", f"{TORCH}/distributed/run.py", 900),
)
LOADER = (
    Frame("Queue.get", "/usr/lib/python3.11/multiprocessing/queues.py", 113),
    Frame("_worker_loop", f"{TORCH}/utils/data/_utils/worker.py", 317),
)


def process(pid: int, rank: int | None, *frames: Frame, active: bool = False) -> ProcessStack:
    thread = Thread("MainThread", True, active, frames)
    threads = (thread,) if frames else ()
    return ProcessStack(pid, "python train.py", rank, "sleeping", threads=threads)


def test_each_rank_is_where_its_own_line_waits_in_a_library() -> None:
    found = rank_sentences([process(2, 1, *SLEEPS), process(1, 0, *ALL_REDUCE)])
    assert found == (
        "Rank 0 waits in all_reduce (train.py:41).",
        "Rank 1 waits in main (train.py:27).",
    )


def test_the_thread_that_trains_is_named_where_the_main_one_shows_nothing() -> None:
    threads = (
        Thread("MainThread", True, False, SLEEPS),
        Thread("trainer", False, False, ALL_REDUCE),
    )
    (said,) = rank_sentences([ProcessStack(1, "python", 0, threads=threads)])
    assert said == "Rank 0 waits in all_reduce (train.py:41)."
    assert rank_sentences([process(1, 0, *JOINS)]) == ("Rank 0 waits in join (train.py:50).",)


def test_a_process_that_was_stopped_is_said_to_be() -> None:
    stopped = replace(process(1, 0, *ALL_REDUCE), state="stopped")
    assert rank_sentences([stopped]) == ("Rank 0 is stopped in all_reduce (train.py:41).",)


def test_what_programs_choose_is_shown_as_text_and_not_for_ever() -> None:
    evil = Frame("\x1b[2Jmain", "/home/ada/" + "x" * 500 + ".py", 1)
    (said,) = rank_sentences([process(1, 0, evil)])
    assert said.isprintable()
    assert len(said) == 200
    many = rank_sentences([process(each, each, *SLEEPS) for each in range(40)])
    assert (len(many), many[-1]) == (17, "24 more ranks are in the file.")


def test_launchers_and_processes_that_load_data_are_not_the_training() -> None:
    found = rank_sentences(
        [process(1, 0, *LAUNCHER), process(3, 0, *LOADER), process(2, 0, *ALL_REDUCE, active=True)]
    )
    assert found == ("Rank 0 is in all_reduce (train.py:41).",)


def test_a_rank_without_python_is_said_to_have_none() -> None:
    shell = ProcessStack(7, "/bin/sh -c 'python train.py; sleep 600'", 1, "sleeping", "do_wait")
    sleep = ProcessStack(8, "sleep 600", 1, "sleeping", "hrtimer_nanosleep")
    assert rank_sentences([shell, sleep]) == (
        "Rank 1 (sh, sleep) shows no Python stack: process 8 is sleeping in hrtimer_nanosleep.",
    )
