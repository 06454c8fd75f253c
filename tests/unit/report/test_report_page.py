"""The page: what it says, and that it copes with what simulations can give it."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from html.parser import HTMLParser

import pytest

from tests.builders import a_policy, a_scenario, cluster, outcome_of, traced
from trainmaster.config.cluster import cluster_from
from trainmaster.model.result import Curve, JobResult, Result, Status, Stint, Summary
from trainmaster.report import figures, palette
from trainmaster.report.gantt import MOST_BARS
from trainmaster.report.headline import headline
from trainmaster.report.page import PAGE, report_files
from trainmaster.report.policy_run import name_runs

VOID = {"meta", "br", "wbr"}
ALWAYS = ("jobs", "finished", "rejected", "unfinished", "gpu_hours_wasted", "preemptions")


class Balance(HTMLParser):
    """Checks that every element is closed, and notes what would be fetched."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.fetched: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.fetched += [
            value or "" for name, value in attrs if name in ("src", "href", "xlink:href")
        ]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        pass

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def render(results: Sequence[Result]) -> str:
    made = {each.name: each for each in report_files(results, "A <title>", "trace & more.csv")}
    html = made[PAGE].content.decode()
    balance = Balance()
    balance.feed(html)
    balance.close()
    assert balance.open == []
    assert all(address.startswith("#") for address in balance.fetched)
    assert "url(" not in html.replace("url(#", "")
    assert "nan" not in re.findall(r'="([^"]*)"', html)
    return html


def without_means(summary: Summary, unfinished: int) -> Summary:
    absent = {
        field.name: None
        for field in fields(Summary)
        if field.name not in (*ALWAYS, "migrations", "events", "jain_index", "gpu_util")
    }
    kept = {"finished": summary.jobs - unfinished, "unfinished": unfinished}
    return replace(summary, **absent, **kept)  # type: ignore[arg-type]


def cut_off(result: Result, *, finished: int) -> Result:
    """The result as it would be if only the first jobs had finished by the horizon."""
    jobs = [
        job
        if place < finished
        else replace(job, finish_ms=None, status=Status.UNFINISHED, rho=None)
        for place, job in enumerate(result.jobs)
    ]
    summary = without_means(result.summary, len(jobs) - finished)
    summary = replace(summary, avg_jct_lower_bound_s=5_400.0)
    bins = [replace(b, avg_jct_s=None, p50_jct_s=None, p95_jct_s=None) for b in result.bins]
    return replace(result, jobs=tuple(jobs), summary=summary, bins=tuple(bins), horizon_s=172_800.0)


def said(results: Sequence[Result]) -> str:
    found = headline(name_runs(results))
    return " ".join([found.sentence, *found.details])


def with_mean(result: Result, policy: str, jct_s: float) -> Result:
    return replace(result, policy=policy, summary=replace(result.summary, avg_jct_s=jct_s))


def test_headline_names_the_best_and_the_factor(three_policies: tuple[Result, ...]) -> None:
    base = three_policies[0]
    slow, fast = with_mean(base, "fifo", 36_000.0), with_mean(base, "srtf", 9_000.0)
    middle = with_mean(base, "las", 18_000.0)
    assert said([slow, fast]) == (
        "Under srtf the average job finishes in 2.50 h: 4.0 times faster than under fifo (10 h)."
    )
    assert said([middle, slow, fast]).endswith(
        "Against las, the first named, srtf is 2.0 times faster."
    )
    assert "3.0 % sooner than under srtf" in said([fast, with_mean(base, "las", 8_730.0)])
    assert said([fast, with_mean(base, "srsf", 9_000.0)]) == (
        "Under srtf and srsf alike, the average job finishes in 2.50 h."
    )
    assert said([fast]) == "Under srtf the average job finishes in 2.50 h."


def test_headline_with_unfinished_jobs(three_policies: tuple[Result, ...]) -> None:
    fifo, srtf, _ = three_policies
    cut = cut_off(fifo, finished=100)
    assert "fifo left 200 jobs unfinished at the horizon (2 d), so its mean" in said([cut, srtf])
    assert "known to be at least 90 min" in said([cut, srtf])
    assert said([cut, cut_off(srtf, finished=120)]).startswith(
        "No policy finished every job: srtf comes closest, with 180 jobs left over."
    )
    assert said([cut_off(fifo, finished=0)]).startswith("No job finished under any policy")


def test_page_marks_the_best_of_each_column(three_policies: tuple[Result, ...]) -> None:
    html = render(three_policies)
    best = min(three_policies, key=lambda result: result.summary.avg_jct_s or 0)
    assert f'class="best" data-value="{best.summary.avg_jct_s!r}"' in html
    assert 'class="best"' not in render(three_policies[:1])


def test_names_are_escaped(make_result: Callable[..., Result]) -> None:
    nasty = '<script>alert("x")</script>'
    result = make_result(nasty, jobs=20)
    result = replace(
        result,
        cluster="<b>",
        options={nasty: nasty},
        warnings=(nasty,),
        stints=(Stint(nasty, (0, 1), 0, 5_000),),
    )
    html = render([result, result])
    assert "<script>alert" not in html
    assert "<b>" not in html
    assert "&lt;script&gt;alert(&quot;x&quot;)&lt;/script&gt; (2)" in html


def empty_result() -> Result:
    counted = {"jobs": 0, "finished": 0, "rejected": 0, "unfinished": 0, "events": 0}
    nothing = {"gpu_hours_wasted": 0.0, "preemptions": 0, "migrations": 0}
    absent = {field.name: None for field in fields(Summary)}
    summary = Summary(**{**absent, **counted, **nothing})  # type: ignore[arg-type]
    return Result("fifo", {}, "1x2", 2, summary, ())


def at_once() -> Result:
    """Every job starts and ends at one instant."""
    job = JobResult("a", "q", 1_000, 0, 7_000, 7_000, 7_000, 0, 0, 0, 0, Status.SUCCEEDED, None)
    point = Curve((7.0,), (0.0,))
    summary = replace(empty_result().summary, jobs=1, finished=1, avg_jct_s=0.0, makespan_s=0.0)
    stint = Stint("a", (0,), 7_000, 7_000)
    return Result(
        *("fifo", {}, "1x2", 2, summary, (job,)),
        utilisation=point,
        queue_length=point,
        fragmentation=point,
        stints=(stint,),
    )


def odd_results(three: tuple[Result, ...]) -> dict[str, list[Result]]:
    fifo = three[0]
    bare = replace(fifo, bins=(), delays=None, stints=(), utilisation=Curve((), ()))
    return {
        "no policy at all": [],
        "no jobs": [empty_result()],
        "zero-length spans": [at_once(), at_once()],
        "one policy": [fifo],
        "nothing finished": [cut_off(fifo, finished=0)],
        "one finished, one cut off": [fifo, cut_off(three[1], finished=50)],
        "all rejected": [
            replace(
                cut_off(fifo, finished=0),
                jobs=tuple(replace(j, status=Status.REJECTED, finish_ms=None) for j in fifo.jobs),
            )
        ],
        "nothing kept for plots": [bare, bare],
        "one without curves": [fifo, bare],
    }


@pytest.mark.parametrize("case", odd_results((empty_result(),) * 3))
def test_copes_with(case: str, three_policies: tuple[Result, ...]) -> None:
    assert "</html>" in render(odd_results(three_policies)[case])


@pytest.mark.parametrize("case", ["no policy at all", "zero-length spans", "nothing finished"])
def test_draws_and_tabulates(case: str, three_policies: tuple[Result, ...]) -> None:
    results = odd_results(three_policies)[case]
    made = {each.name for each in report_files(results, "t", "t")}
    assert {"index.html", "summary.csv", "jct_cdf.png", "queue_length.png"} <= made


def test_eight_policies_have_eight_colours(make_result: Callable[..., Result]) -> None:
    results = [make_result(f"p{place}", jobs=30) for place in range(8)]
    for paper in palette.css().split("@media(prefers-color-scheme:dark)"):
        colours = re.findall(r"--s[0-7]:(#\w+);", paper)
        assert len(set(colours)) == len(colours) == 8
    drawn = figures.jct_bars(name_runs(results)).svg()
    assert all(f"fill: var(--s{slot}," in drawn for slot in range(8))


def test_a_page_stays_small_whatever_happens_in_the_hour(
    three_policies: tuple[Result, ...],
) -> None:
    stints = tuple(
        Stint(f"job-{place}", (place % 16,), 1_000 * (place // 16), 1_000 * (place // 16 + 1))
        for place in range(16 * 1_000)
    )
    html = render([replace(three_policies[0], stints=stints)])
    assert len(html) < 5_000_000
    assert f"Shown: the {MOST_BARS:,} longest of 16,000 stays." in html


def test_costs_are_shown_by_policy_and_by_queue_where_gpus_have_prices() -> None:
    prices = {"types": {"A": {"price_per_hour": 3.0}}, "nodes": {"gpus": 2, "type": "A"}}
    jobs = [traced("a", 2, 3_600, queue="vision"), traced("b", 1, 7_200, queue="speech")]
    priced, free = (
        render([outcome_of(a_scenario(jobs, topology), a_policy("fifo"))])
        for topology in (cluster_from(prices).topology, cluster("1x2"))
    )
    assert "Cost by queue" in priced
    assert ">Cost</th>" in priced
    assert "Cost" not in free
