"""How well throughput estimation predicts what others measured, before and after correction.

Three sets of measurements that nobody here made: AdaptDL's (Pollux, OSDI'21), ElasticFlow's
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

from benchmarks.published_steps import MILLION, Point, Testbed, testbeds
from trainmaster.estimators.throughput import Links, timeline
from trainmaster.estimators.throughput_calibration import NOTHING_MEASURED, fitted
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
class Errors:
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


def errors(points: Iterable[Point], predicted: Callable[[Point], float]) -> Errors:
    return Errors(tuple(abs(p.step_ns / predicted(p) - 1) for p in points))


def after_learning(points: Sequence[Point], links: Links, seed: int) -> list[float]:
    """Errors in the order of a shuffle, each point predicted from those before it, then learned."""
    order = list(points)
    random.Random(seed).shuffle(order)
    corrections, found = NOTHING_MEASURED, []
    for point in order:
        predicted = timeline(point.profile, point.allocation, links)
        scales = fitted(corrections.of(point.model))
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
        scales = fitted(corrections.of(group[0].model))
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


@dataclass(frozen=True)
class Verdict:
    """All that is said of one model on one testbed."""

    model: str
    is_teacher: bool
    count: int
    linear: Errors
    curve: Errors
    before: Errors
    after: Errors
    """Sequentially, over all points but the first of each shuffle."""
    growing: Errors
    """The same from smaller sizes only, over all points but those of the smallest."""
    defaults: Errors
    """Before, with the default links instead of the testbed's."""
    by_learned: tuple[Errors | None, ...]
    """After exactly so many measurements as `LEARNED` says (the next eight points)."""


def judge(bed: Testbed, model: str, links: Links) -> Verdict:
    points = bed.of(model)
    runs = [after_learning(points, links, seed) for seed in SEEDS]
    by_learned: list[Errors | None] = []
    for known in LEARNED:
        window = [each for run in runs for each in run[known : known + 8]]
        by_learned.append(Errors(tuple(window)) if len(points) > known else None)
    return Verdict(
        model=model,
        is_teacher=model == bed.teacher,
        count=len(points),
        linear=errors(points, lambda p: p.alone_ns),
        curve=errors(points, curve_step),
        before=errors(points, lambda p: p.predicted(links)),
        after=Errors(tuple(each for run in runs for each in run[1:])),
        growing=Errors(tuple(each for seed in SEEDS for each in growing(points, links, seed))),
        defaults=errors(points, lambda p: p.predicted(Links())),
        by_learned=tuple(by_learned),
    )


def described(links: Links) -> str:
    said = []
    for level, name in (("node", "inside a node"), ("rack", "between nodes")):
        link = links.at(level)
        said.append(f"{name} {link.bytes_per_s / 1e9:.2g} GB/s and {link.latency_us} µs per hop")
    return f"{'; '.join(said)}; overlap {links.overlap_ppm / MILLION:.0%}"


def section(bed: Testbed, links: Links, verdicts: Sequence[Verdict]) -> list[str]:
    lines = [
        f"## {bed.name}",
        "",
        f"{bed.wires}. Fitted on {bed.teacher}: {described(links)}.",
        "",
    ]
    lines += [
        "| model | points | linear | 0.868 curve | default links | before | after | growing |",
        "|---|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for v in verdicts:
        name = f"{v.model} (links)" if v.is_teacher else v.model
        lines.append(
            f"| {name} | {v.count} | {v.linear} | {v.curve} | {v.defaults} | {v.before} | {v.after}"
            f" | {v.growing} |"
        )
    others = [v for v in verdicts if not v.is_teacher]
    means = [
        sum(getattr(v, column).mean for v in others) / len(others)
        for column in ("linear", "curve", "defaults", "before", "after", "growing")
    ]
    cells = " | ".join(f"{mean:.1%}" for mean in means)
    lines += [f"| mean of the others | {sum(v.count for v in others)} | {cells} |", ""]
    return lines


def learning(beds: Sequence[tuple[Testbed, Links, list[Verdict]]]) -> list[str]:
    """How fast the correction learns: mean error over models that have enough points."""
    lines = [
        "## How many measurements it takes",
        "",
        "Mean error of the next eight predictions after so many measurements of the same model, over",
        "the models with at least 17 points (the one that the links were fitted on left out).",
        "",
        f"| testbed | 0 | {' | '.join(str(n) for n in LEARNED)} |",
        f"|---|{'---:|' * (len(LEARNED) + 1)}",
    ]
    for bed, _, verdicts in beds:
        long = [v for v in verdicts if v.count > LEARNED[-1] and not v.is_teacher]
        if not long:
            continue
        row = [sum(v.before.mean for v in long) / len(long)]
        for index in range(len(LEARNED)):
            found = [each.mean for v in long if (each := v.by_learned[index]) is not None]
            row.append(sum(found) / len(found))
        lines.append(f"| {bed.name} | {' | '.join(f'{each:.1%}' for each in row)} |")
    return [*lines, ""]


INTRODUCTION = """# Throughput estimation against published measurements

Written by `python -m benchmarks.estimation`; how the estimation works is in [throughput](../throughput.md).

The cells are mean / 90th percentile of |predicted speed / measured speed - 1|; 100 % means predicted twice
as fast as it was. *Linear* and *0.868 curve* (so much kept per doubling) know the step on one GPU and the
number of GPUs. *Before* knows also the parameter bytes and the links. *After* is predicted, then learned:
the points of a model come in shuffled order (three seeds), each predicted from a correction by the points
before it (the last 24 of them), never from itself. *Growing* is harder: sizes come in order, and a size is
predicted from what was measured on fewer GPUs only. *Default links* is *before* for a user who does not set
the links of the cluster. Links were fitted on one model of each testbed, marked
`(links)`, and held for the others; a mean over the others stands last. Points on one GPU are given, not
judged.

Where each GPU keeps its samples (AdaptDL, Gavel) the profile is one GPU at the same number of samples. Where
the whole batch is fixed (ElasticFlow) it is one GPU with the whole batch, and the part of the step that does
not shrink comes from one GPU at two batches, where the table has two (else 5 % is assumed).
"""


def main() -> None:
    root = Path(__file__).parents[1]
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, default=root.parent / "shared" / "data")
    parser.add_argument("--out", type=Path, default=root / "docs/measurements/throughput.md")
    options = parser.parse_args()
    if not (options.data / "adaptdl").is_dir():
        parser.error(f"there are no measurements at {options.data}; name their folder with --data.")
    start = time.perf_counter()
    lines, judged = [INTRODUCTION], []
    for bed in testbeds(options.data):
        taught = bed.of(bed.teacher)
        links = fit_links(taught[:: max(1, len(taught) // 150)])
        verdicts = [judge(bed, model, links) for model in bed.models()]
        judged.append((bed, links, verdicts))
        lines += section(bed, links, verdicts)
    lines += learning(judged)
    text = "\n".join(lines).rstrip() + "\n"
    print(text)
    kept = ""
    if options.out.exists() and NOTES in (before := options.out.read_text()):
        kept = "\n" + before[before.index(NOTES) :]
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(text + kept)
    print(f"Written to {options.out} in {time.perf_counter() - start:.0f} s.")


NOTES = "## What this says"
"""Written by people, kept when the numbers are written again."""

if __name__ == "__main__":
    main()
