"""Inputs on which job after job fails are set aside, and only those."""

from __future__ import annotations

from dataclasses import replace

import pytest

from trainmaster.failures.input_blocks import (
    MISSING,
    RECENT_MS,
    absolute,
    block_of,
    failed_inputs,
    has_changed,
    is_made,
    is_to_be_blocked,
    made_paths,
    named_paths,
    program_key,
)
from trainmaster.model.inputs import InputBlock, InputFailure

BAD = "/data/train.rec"


def failures(*said: str) -> list[InputFailure]:
    """Each as `job user program`."""
    return [InputFailure(BAD, *each.split(), "missing-file", 5) for each in said]  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("said", "is_blocked"),
    [
        (("1 ada a.py", "2 bob a.py"), False),
        (("1 ada a.py", "2 bob a.py", "3 ada a.py"), True),
        (("1 ada a.py", "2 ada b.py", "3 ada a.py"), True),
        (("1 ada a.py", "2 ada a.py", "3 ada a.py", "4 ada a.py"), False),  # its own wrong path
        (("1 ada a.py", "1 bob b.py", "1 ada b.py"), False),
    ],
)
def test_three_jobs_of_several_users_or_programs(said: tuple[str, ...], is_blocked: bool) -> None:
    assert is_to_be_blocked(failures(*said), 3) is is_blocked


def test_what_failed_long_ago_does_not_count() -> None:
    found = failures("1 ada a.py", "2 bob a.py", "3 ada a.py")
    found[0] = replace(found[0], at_ms=-RECENT_MS)
    assert not is_to_be_blocked(found, 3)
    assert not is_to_be_blocked([], 3)


def test_programs_are_told_apart_by_name_folder_and_inline_code() -> None:
    train = program_key("train.py", "/home/ada", ("python", "train.py", "--lr", "1"))
    assert train == program_key("train.py", "/home/ada", ("python", "train.py", "--lr", "2"))
    assert train != program_key("train.py", "/home/ada/other", ("python", "train.py"))
    inline = program_key("python3", "/w", ("python3", "-c", "open('/x'); fit(lr=1)"))
    assert inline == program_key("python3", "/w", ("python3", "-c", "open('/x'); fit(lr=2)"))
    assert inline != program_key("python3", "/w", ("python3", "-c", "open('/x').read()"))


def test_paths_are_seen_from_the_folder_of_the_job() -> None:
    assert absolute("train.rec", "/home/ada") == "/home/ada/train.rec"
    assert absolute("../bob//x/./y/", "/home/ada") == "/home/bob/x/y"
    assert absolute("/../..", "/w") == "/"
    assert absolute("s3://bucket/x/", "/w") == "s3://bucket/x"


def test_a_failure_counts_against_the_path_and_the_stated_data_around_it() -> None:
    assert failed_inputs("set/3.rec", "/data", ["/data/set", "/data/se", "/other"]) == (
        "/data/set/3.rec",
        "/data/set",
    )
    assert failed_inputs("", "/data", ["/data"]) == ()
    assert failed_inputs("/", "/data", ["/"]) == ()


@pytest.mark.parametrize(
    ("command", "data", "waits"),
    [
        (("python", "a.py", "/data/train.rec"), (), True),
        (("python", "a.py", "--data=/data/train.rec"), (), True),
        (("python", "a.py", "train.rec"), (), True),
        (("bash", "-c", "cd x && python a.py '/data/train.rec' | tee log"), (), True),
        (("python", "a.py"), ("/data/train.rec",), True),
        (("python", "a.py", "/data/train.rec/part"), (), True),
        (("python", "a.py", "/data/train.rec.old"), (), False),
        (("python", "a.py", "/data"), ("/data",), False),
        (("python", "a.py"), (), False),
    ],
)
def test_jobs_that_name_it_wait(
    command: tuple[str, ...], data: tuple[str, ...], waits: bool
) -> None:
    found = block_of(
        named_paths(command, "/data", data), [InputBlock("/no", 1), InputBlock(BAD, 2)]
    )
    assert (found is not None) is waits


@pytest.mark.parametrize(
    "command",
    [
        ("python", "prepare.py", "--out", BAD),
        ("python", "prepare.py", f"--out={BAD}"),
        ("python", "prepare.py", "--data", "/raw", "-o", "train.rec"),
        ("python", "prepare.py", "--output-dir", "/data/train.rec/parts"),
        ("python", "prepare.py", "--output_file", BAD),
        ("python", "prepare.py", "--save-path", BAD),
        ("python", "prepare.py", "--to", BAD),
        ("python", "prepare.py", f"hydra.output_dir={BAD}"),
        ("sh", "-c", f"python prepare.py > {BAD}"),
        ("sh", "-c", f"python prepare.py 2>>'{BAD}'"),
        ("sh", "-c", f"python prepare.py | tee {BAD}"),
        ("sh", "-c", f"python prepare.py --out '{BAD}' && echo done"),
    ],
)
def test_a_job_that_makes_it_does_not_wait(command: tuple[str, ...]) -> None:
    assert block_of(named_paths(command, "/data", ()), [InputBlock(BAD, 1)]) is None
    assert block_of(made_paths(command, "/data"), [InputBlock(BAD, 1)]) is not None


@pytest.mark.parametrize(
    "command",
    [
        ("python", "a.py", "--data", BAD, "--out", BAD),
        ("python", "a.py", "--out", "/x", BAD),
        ("python", "a.py", "--resume-from-save", BAD),
        ("python", "a.py", "out", BAD),
        ("sh", "-c", f"python a.py < {BAD} > /x"),
    ],
)
def test_a_job_that_reads_it_does_whatever_it_writes(command: tuple[str, ...]) -> None:
    assert block_of(named_paths(command, "/data", ()), [InputBlock(BAD, 1)]) is not None
    assert not is_made(BAD, command, "/data", ())


def test_what_lies_in_an_output_is_one_unless_it_is_data_too() -> None:
    command = ("python", "a.py", "--out", "res")
    assert is_made("res/metrics.csv", command, "/data", ())
    assert not is_made("other/metrics.csv", command, "/data", ())
    assert not is_made("res/metrics.csv", command, "/data", ("/data",))


def test_many_words_in_an_option_take_no_time() -> None:
    assert not made_paths(("a", "--" + "a_" * 400 + "!", "/x"), "/w")


def test_it_has_changed_when_it_is_another_one() -> None:
    block = InputBlock(BAD, 1, tuple(failures("1 ada a.py")))
    assert not has_changed(block, MISSING)
    assert not has_changed(block, f"{MISSING} in /data 5")
    assert has_changed(block, "12 5 7")  # it was missing, and is there now
    seen = InputBlock(BAD, 1, block.failures, "12 5 7")
    assert not has_changed(seen, "12 5 7")
    assert has_changed(seen, "12 5 8")
    assert has_changed(seen, MISSING)
    corrupt = InputBlock(BAD, 1, (InputFailure(BAD, "1", "ada", "a.py", "corrupt-data", 5),))
    assert not has_changed(corrupt, "12 5 7")
