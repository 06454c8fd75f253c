"""How much memory a job needs, from its own run and from earlier ones, as tables."""

from __future__ import annotations

import pytest

from trainmaster.estimators.memory.observed_memory import (
    Arguments,
    PastRun,
    batch_of,
    best,
    of_earlier_runs,
    of_own_run,
)
from trainmaster.model.memory_estimate import MemoryEstimate, MemorySource
from trainmaster.model.units import GIB


def words(text: str) -> Arguments:
    return tuple(text.split())


def ran(*runs: tuple[str, float]) -> list[PastRun]:
    return [PastRun(words(text), round(gib * GIB)) for text, gib in runs]


def estimated(text: str, *runs: tuple[str, float]) -> tuple[float, float, float] | None:
    found = of_earlier_runs(ran(*runs), words(text), {})
    if found is None:
        return None
    assert found.source is MemorySource.LEARNED
    return (round(found.low / GIB, 1), round(found.expected / GIB, 1), round(found.high / GIB, 1))


def test_the_interval_of_its_own_run_narrows_with_its_steps() -> None:
    tops = [of_own_run(10 * GIB, steps).high / GIB for steps in (0, 1, 3, 30, 1_000)]
    assert [round(top, 1) for top in tops] == [20.0, 20.0, 14.0, 11.3, 11.0]
    assert all(of_own_run(10 * GIB, steps).low == 10 * GIB for steps in (1, 30, None))
    assert of_own_run(10 * GIB, None) == of_own_run(10 * GIB, 1_000)


@pytest.mark.parametrize(
    ("asked", "runs", "wanted"),
    [
        pytest.param("--batch 8", [], None, id="nothing is known"),
        pytest.param(
            "--batch 8",
            [("--batch 8", 3), ("--batch 8", 4), ("--batch 64", 40)],
            (3, 4, 4.4),
            id="the same arguments count alone",
        ),
        pytest.param(
            "--lr 1 --batch 32",
            [("--lr 1 --batch 8", 3), ("--batch=16 --lr 1", 5)],
            (9, 9, 10.4),
            id="linear in the batch: 1 GiB, and 0.25 for each sample",
        ),
        pytest.param(
            "--batch 2", [("--batch 8", 3), ("--batch 16", 5)], (1.5, 1.5, 1.7), id="and downwards"
        ),
        pytest.param(
            "--batch 32", [("--batch 8", 3)], None, id="one batch and one run say too little"
        ),
        pytest.param(
            "--batch 32 --width 9",
            [("--batch 8 --width 1", 3), ("--batch 16 --width 2", 5)],
            None,
            id="other arguments differ too, and these are two runs",
        ),
        pytest.param(
            "--width 9",
            [("--width 1", 1), ("--width 2", 2), ("--width 3", 4)],
            (1, 4, 6),
            id="the largest of three, and half of it",
        ),
        pytest.param(
            "--width 9 --batch 16",
            [("--width 1 --batch 8", 1), ("--width 2 --batch 8", 2), ("--width 3 --batch 32", 3)],
            (1, 4, 6),
            id="a larger batch needs more in proportion at most",
        ),
        pytest.param(
            "--batch 64",
            [("--batch 8", 9), ("--batch 16", 3)],
            None,
            id="memory that falls with the batch is no line",
        ),
        pytest.param(
            "--batch 4096",
            [("--batch 1", 2), ("--batch 2", 2)],
            None,
            id="what does not grow says nothing of a larger batch",
        ),
        pytest.param(
            "--batch 4096",
            [("--batch 1", 2), ("--batch 2", 2 + 1 / 1024)],
            None,
            id="a MiB is no growth",
        ),
        pytest.param(
            "--batch 4",
            [("--batch 1", 2), ("--batch 2", 2), ("--batch 2", 2)],
            (2, 8, 12),
            id="three such runs: the largest in proportion",
        ),
        pytest.param(
            "--batch 3",
            [("--batch 2", 2), ("--batch 4", 2)],
            (2, 2, 2.3),
            id="but of one in between",
        ),
    ],
)
def test_what_earlier_runs_say(
    asked: str, runs: list[tuple[str, float]], wanted: tuple[float, float, float] | None
) -> None:
    assert estimated(asked, *runs) == wanted


@pytest.mark.parametrize(
    ("ratios", "top"),
    [
        ([100] * 8, 4.4),  # too few
        ([90] * 9, 4.4),  # no less than what a run's own peak gets
        ([100, 101, 101, 102, 102, 103, 104, 105, 150], 6.0),
        ([100] * 17 + [130, 300], 5.2),  # one of twenty may be above
        ([4_000] * 9, 8.0),  # no more than after the first step of a run
    ],
)
def test_the_top_is_what_past_estimates_have_missed(ratios: list[int], top: float) -> None:
    found = of_earlier_runs(ran(("-b 8", 4)), words("-b 8"), {True: ratios, False: [900] * 9})
    assert found is not None
    assert round(found.high / GIB, 1) == top


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("--batch 8 --lr 1", (8, ("--lr", "1"))),
        ("--lr 1 --batch-size=8", (8, ("--lr", "1"))),
        ("--per_device_train_batch_size 8", (8, ())),
        ("-b 8", (8, ())),
        ("--batch", None),
        ("--batch many", None),
        ("--batch 0", None),
        ("--batch 8 --micro-batch-size 2", None),
        ("--lr 1", None),
    ],
)
def test_the_batch_is_read_from_the_arguments(
    text: str, wanted: tuple[int, Arguments] | None
) -> None:
    assert batch_of(words(text)) == wanted


def an_estimate(low: int, high: int, *, is_same: bool = False) -> MemoryEstimate:
    source = MemorySource.LEARNED if is_same else MemorySource.MEASURED
    return MemoryEstimate(low, low, high, source, is_same=is_same)


def test_the_narrowest_that_is_possible_counts() -> None:
    wide, narrow, same = an_estimate(4, 9), an_estimate(5, 7), an_estimate(2, 8, is_same=True)
    assert best([wide, narrow, None], 5) == narrow
    assert best([wide, narrow, same], 5) == same  # it has shown what comes later
    assert best([wide, narrow, same], 9) == wide
    assert best([wide, narrow], 10) is None
