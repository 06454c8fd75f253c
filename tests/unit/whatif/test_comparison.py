"""Columns side by side: the same numbers made in the same way, and one true sentence."""

from __future__ import annotations

from trainmaster.daemon.whatif_rows import WhatIfResult
from trainmaster.model.units import SECOND, WHOLE
from trainmaster.whatif.comparison import Column, CountedJob, Fate, Stay, compared
from trainmaster.whatif.daily import LEAST_JOBS, judged

JOBS = [CountedJob(name, name, "ada", queue, WHOLE, 0) for name, queue in (("a", "x"), ("b", "y"))]


def column(kind: str, name: str, **ends_s: tuple[float, float] | None) -> Column:
    fates = {
        job: Fate(None, None)
        if times is None
        else Fate(round(times[0] * SECOND), round(times[1] * SECOND), WHOLE)
        for job, times in ends_s.items()
    }
    stays = [
        Stay(fate.start_ms or 0, fate.finish_ms, WHOLE)
        for fate in fates.values()
        if fate.finish_ms is not None
    ]
    return Column(name, kind, name, {}, 2, fates, stays)


def shown(*columns: Column) -> WhatIfResult:
    return compared("history", JOBS, columns, (0, 20 * SECOND))


def test_who_does_best_and_how_far_the_model_is_from_what_happened() -> None:
    found = shown(
        column("real", "fifo", a=(0, 10), b=(10, 20)),
        column("in-force", "fifo", a=(0, 10), b=(10, 17)),
        column("other", "las", a=(5, 12), b=(0, 5)),
        column("other", "worse", a=(0, 15), b=(15, 20)),
    )
    real, own, las, worse = found.sides
    assert (real.mean_jct_s, own.mean_jct_s, las.mean_jct_s) == (15, 13.5, 8.5)
    assert found.model_error == -0.1
    assert (own.winners, las.winners, las.losers, worse.losers) == (None, 1, 1, 2)
    assert found.headline == (
        "Under las a job takes 8.50 s on average, 37 % less than the 13.5 s under fifo; 1 job wins and 1"
        " loses. The model's mean is 10 % below the real one."
    )
    assert [(job.job, job.changes_s) for job in found.jobs] == [
        ("b", [3.0, 0.0, -12.0, 3.0]),
        ("a", [0.0, 0.0, 2.0, 5.0]),
    ]
    assert [(each.queue, each.mean_wait_s) for each in own.queues] == [("x", 0), ("y", 10)]
    assert own.utilisation == 17 / 40
    assert own.used_curve == [[0, 1], [10, 1], [17, 0], [20, 0]]
    assert own.jct_curve == [[10, 0.5], [17, 1]]


def test_no_mean_is_given_where_a_job_does_not_end() -> None:
    found = shown(
        column("in-force", "fifo", a=(0, 1), b=(1, 2)), column("other", "las", a=(0, 1), b=None)
    )
    assert found.sides[1].jobs == 1
    assert found.sides[1].mean_jct_s is None
    assert found.headline == "Under fifo a job takes 1.50 s on average."
    assert found.model_error is None


def result(own_s: float, other_s: float, error: float, jobs: int = LEAST_JOBS) -> dict[str, object]:
    sides = [
        {"kind": "in-force", "policy": "fifo", "mean_jct_s": own_s},
        {"kind": "other", "policy": "las", "mean_jct_s": other_s},
    ]
    return {"sides": sides, "jobs_counted": jobs, "model_error": error}


def test_another_policy_is_better_only_by_more_than_the_model_errs() -> None:
    assert judged(result(100, 80, 0.1), 0).better == "las"
    assert judged(result(100, 80, -0.3), 0).better is None
    assert judged(result(100, 96, 0.0), 0).better is None
    few = judged(result(100, 10, 0.0, jobs=3), 0)
    assert (few.better, few.sentence) == (
        None,
        "Too few jobs ended (3 jobs) to compare policies on.",
    )
