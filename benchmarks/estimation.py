"""How well throughput estimation predicts what others measured, before and after correction.

Three sets of measurements by others: AdaptDL's (Pollux, OSDI'21), ElasticFlow's
(ASPLOS'23) and Gavel's (OSDI'20). Links are fitted on one model of each testbed and held for the
others; a model's own points are used only by the correction, one after another: predict, then learn.

    python -m benchmarks.estimation [--data ../shared/data] [--out docs/measurements/throughput.md]
"""

from __future__ import annotations

import argparse
import math
import random
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks.pages import page
from benchmarks.published_steps import MILLION, Point, Testbed, testbeds
from trainmaster.estimators.interconnect import Links
from trainmaster.estimators.step_time import timeline
from trainmaster.estimators.throughput_calibration import NOTHING_MEASURED, fit_scales
from trainmaster.perf.default_parameters import ELASTICITY

DOUBLING = ELASTICITY.doubling_ppm / MILLION


# ---------------------------------------------------------------------------------- measuring


def fit_links(points: Sequence[Point]) -> Links:
    """The links under which these points are predicted best: a search, one figure at a time."""

    def misfit(links: Links) -> float:
        return sum(math.log(p.predicted(links) / p.step_ns) ** 2 for p in points) / len(points)

    best = Links()
    error = misfit(best)
    for _ in range(6):
        before = error
        for moved in neighbours(best):
            found = misfit(moved)
            if found < error:
                best, error = moved, found
        if error == before:
            break
    return best


def neighbours(links: Links) -> Iterator[Links]:
    for level in ("node", "rack"):
        link = links.at(level)
        for factor in (0.1, 0.2, 0.4, 0.6, 0.8, 0.9, 1.1, 1.25, 1.6, 2.5, 5, 10):
            yield links.with_level(level, link.bytes_per_s * factor / 1e9, link.latency_us)
        for latency in (0, 5, 10, 20, 50, 100, 200, 400, 800, 1600):
            yield links.with_level(level, link.bytes_per_s / 1e9, latency)
    for overlap in (0, 0.25, 0.5, 0.75, 1):
        yield replace(links, overlap_ppm=round(overlap * MILLION))


@dataclass(frozen=True)
class PredictionErrors:
    """Absolute relative errors of predicted speeds."""

    values: tuple[float, ...]

    @property
    def mean(self) -> float:
        return sum(self.values) / len(self.values)

    @property
    def p90(self) -> float:
        return sorted(self.values)[min(len(self.values) - 1, int(0.9 * len(self.values)))]

    def __str__(self) -> str:
        return f"{self.mean:.1%} / {self.p90:.1%}"


def errors(points: Iterable[Point], predicted: Callable[[Point], float]) -> PredictionErrors:
    return PredictionErrors(tuple(abs(p.step_ns / predicted(p) - 1) for p in points))


def after_learning(points: Sequence[Point], links: Links, seed: int) -> list[float]:
    """Errors in the order of a shuffle, each point predicted from those before it, then learned."""
    order = list(points)
    random.Random(seed).shuffle(order)
    corrections, found = NOTHING_MEASURED, []
    for point in order:
        predicted = timeline(point.profile, point.allocation, links)
        scales = fit_scales(corrections.of(point.model))
        found.append(abs(point.step_ns / predicted.step_ns(scales) - 1))
        corrections = corrections.updated(
            point.model, point.allocation, predicted, round(point.step_ns)
        )
    return found


def growing(points: Sequence[Point], links: Links, seed: int) -> list[float]:
    """Errors when a job grows: points of a size are predicted from smaller sizes only, then learned."""
    order = list(points)
    random.Random(seed).shuffle(order)
    sizes = sorted({point.allocation.count for point in order})
    corrections, found = NOTHING_MEASURED, []
    for size in sizes:
        group = [point for point in order if point.allocation.count == size]
        scales = fit_scales(corrections.of(group[0].model))
        for point in group:
            predicted = timeline(point.profile, point.allocation, links)
            if size != sizes[0]:
                found.append(abs(point.step_ns / predicted.step_ns(scales) - 1))
            corrections = corrections.updated(
                point.model, point.allocation, predicted, round(point.step_ns)
            )
    return found


def curve_step(point: Point) -> float:
    return point.alone_ns / DOUBLING ** math.log2(point.allocation.count)


# ---------------------------------------------------------------------------------- reporting

SEEDS = (0, 1, 2)
LEARNED = (1, 2, 4, 8, 16)
NOTES = "## What this says"
"""Written by people, kept when the numbers are written again."""


@dataclass(frozen=True)
class ModelErrors:
    """The errors of one model on one testbed."""

    model: str
    is_teacher: bool
    count: int
    linear: PredictionErrors
    curve: PredictionErrors
    before: PredictionErrors
    after: PredictionErrors
    """Sequentially, over all points but the first of each shuffle."""
    growing: PredictionErrors
    """The same from smaller sizes only, over all points but those of the smallest."""
    defaults: PredictionErrors
    """Before, with the default links instead of the testbed's."""
    by_learned: tuple[PredictionErrors, ...]
    """On the next eight points after each number of measurements in `LEARNED`, where there are that many."""


def judge(bed: Testbed, model: str, links: Links) -> ModelErrors:
    points = bed.of(model)
    runs = [after_learning(points, links, seed) for seed in SEEDS]
    return ModelErrors(
        model=model,
        is_teacher=model == bed.teacher,
        count=len(points),
        linear=errors(points, lambda p: p.alone_ns),
        curve=errors(points, curve_step),
        before=errors(points, lambda p: p.predicted(links)),
        after=PredictionErrors(tuple(each for run in runs for each in run[1:])),
        growing=PredictionErrors(
            tuple(each for seed in SEEDS for each in growing(points, links, seed))
        ),
        defaults=errors(points, lambda p: p.predicted(Links())),
        by_learned=tuple(
            PredictionErrors(tuple(each for run in runs for each in run[known : known + 8]))
            for known in LEARNED
            if len(points) > known
        ),
    )


def main() -> None:
    root = Path(__file__).parents[1]
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, default=root.parent / "shared" / "data")
    parser.add_argument("--out", type=Path, default=root / "docs/measurements/throughput.md")
    options = parser.parse_args()
    if not (options.data / "adaptdl").is_dir():
        parser.error(f"there are no measurements at {options.data}; name their folder with --data.")
    start = time.perf_counter()
    beds = []
    for bed in testbeds(options.data):
        taught = bed.of(bed.teacher)
        links = fit_links(taught[:: max(1, len(taught) // 150)])
        beds.append((bed, links, [judge(bed, model, links) for model in bed.models()]))
    text = page("estimation_page.md", beds=beds, learned=LEARNED).rstrip() + "\n"
    print(text)
    kept = ""
    if options.out.exists() and NOTES in (before := options.out.read_text()):
        kept = "\n" + before[before.index(NOTES) :]
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(text + kept)
    print(f"Written to {options.out} in {time.perf_counter() - start:.0f} s.")


if __name__ == "__main__":
    main()
