"""Predicted against measured speeds of gloo trainings, before and after correction, as a page.

Known before: the step on one rank, the parameter bytes, and one bandwidth and latency by all-reduces
without any training. A correction adds the measured steps on fewer ranks, never that of the row itself.

    python -m benchmarks.gloo_predictions benchmarks/results/gloo.json --out docs/measurements/gloo-speed.md
"""

from __future__ import annotations

import argparse
import json
import statistics
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from trainmaster.estimators.allocation import Allocation
from trainmaster.estimators.interconnect import GB, Links, fit_link
from trainmaster.estimators.step_time import timeline
from trainmaster.estimators.throughput_calibration import NOTHING_MEASURED, fit_scales
from trainmaster.model.profile import Profile

NOTES = "## What this says"
HEAD = """# Predicted speed of gloo trainings

Written by `python -m benchmarks.gloo_predictions`, of what `benchmarks/gloo_speed.py` measured
([raw](../../benchmarks/results/gloo.json)); how the estimation works is in [throughput](../throughput.md).

*Before* knows the step of one rank, the bytes of its parameters, and one bandwidth and latency fitted to
all-reduces without any training. *After* is corrected by the measured steps of the same model on fewer ranks,
never by its own row; so nothing corrects the row of 2 ranks. *Linear* is the speed of one rank times their
number. Each rank has its own samples, so that one computes the same however many there are.
"""


def links_of(by_ranks: dict[int, Any]) -> Links:
    """The median over the numbers of ranks; on CPUs nothing hides behind the computing."""
    found = [
        fit_link(ranks, {int(size): span for size, span in measured["all_reduce_s"].items()})
        for ranks, measured in by_ranks.items()
        if measured["all_reduce_s"]
    ]
    bandwidth = statistics.median(each.bytes_per_s for each in found)
    latency = statistics.median(each.latency_us for each in found)
    return replace(Links().with_level("node", bandwidth / GB, round(latency)), overlap_ppm=0)


def rows(
    by_ranks: dict[int, Any], model: str, links: Links
) -> list[tuple[int, float, float, float]]:
    """(ranks, measured samples/s, predicted before, predicted after correction by fewer ranks)."""
    alone = by_ranks[1]["models"][model]
    corrections, found = NOTHING_MEASURED, []
    for ranks in sorted(by_ranks):
        if ranks == 1:
            continue
        step_ns = by_ranks[ranks]["models"][model]["step_s"] * 1e9
        batch = ranks * alone["batch"]
        profile = Profile(
            step_us=round(ranks * alone["step_s"] * 1e6),
            batch=batch,
            sync_bytes=alone["parameter_bytes"],
            fixed_us=0,
        )
        allocation = Allocation.plain(ranks)
        predicted = timeline(profile, allocation, links)
        corrected = predicted.step_ns(fit_scales(corrections.of(model)))
        speeds = [batch * 1e9 / each for each in (step_ns, predicted.step_ns(), corrected)]
        found.append((ranks, speeds[0], speeds[1], speeds[2]))
        corrections = corrections.updated(model, allocation, predicted, round(step_ns))
    return found


class Errors(NamedTuple):
    """Relative errors of one row."""

    linear: float
    before: float
    after: float


def errors(by_ranks: dict[int, Any], links: Links, *, at_least: int) -> list[Errors]:
    """On so many ranks or more, of all models."""
    found = []
    for model, alone in by_ranks[1]["models"].items():
        for ranks, speed, before, after in rows(by_ranks, model, links):
            if ranks >= at_least:
                linear = ranks * alone["batch"] / alone["step_s"]
                found.append(Errors(*(abs(each / speed - 1) for each in (linear, before, after))))
    return found


def page(measured: dict[str, Any]) -> str:
    by_ranks = {int(ranks): found for ranks, found in measured["by_ranks"].items()}
    links = links_of(by_ranks)
    link = links.at("node")
    lines = [
        HEAD,
        f"{measured['cores']} cores, two for each rank, torch {measured['torch']}, gloo over loopback."
        f" All-reduces alone: {link.bytes_per_s / GB:.2f} GB/s, {link.latency_us} µs per hop.",
        "",
        "| model | ranks | measured samples/s | before | error | after | error |",
        "|---|---:|---:|---:|---:|---:|---:|",
    ]
    for model in by_ranks[1]["models"]:
        alone = by_ranks[1]["models"][model]
        lines.append(f"| {model} | 1 | {alone['batch'] / alone['step_s']:.0f} | | | | |")
        for ranks, speed, before, after in rows(by_ranks, model, links):
            has_more = ranks > 2
            corrected = f"{after:.0f} | {after / speed - 1:+.0%}" if has_more else "| "
            lines.append(
                f"| {model} | {ranks} | {speed:.0f} | {before:.0f} | {before / speed - 1:+.0%} "
                f"| {corrected} |"
            )
    heading = "| median of the errors | linear | before | after | worst before | worst after |"
    lines += ["", heading, "|---|---:|---:|---:|---:|---:|"]
    for most, at_least in (("2, 4 and 8 ranks", 2), ("4 and 8 ranks", 4)):
        found = errors(by_ranks, links, at_least=at_least)
        linear, before, after = (statistics.median(each) for each in zip(*found, strict=True))
        worst, worst_after = (max(each) for each in list(zip(*found, strict=True))[1:])
        corrected = ("", "") if at_least == 2 else (f"{after:.0%}", f"{worst_after:.0%}")
        lines.append(
            f"| {most} | {linear:.0%} | {before:.0%} | {corrected[0]} | {worst:.0%} | {corrected[1]} |"
        )
    return "\n".join(lines) + "\n\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("measured", type=Path, help="what gloo_speed.py wrote")
    parser.add_argument("--out", type=Path, help="the page; what it says below the tables stays")
    options = parser.parse_args()
    text = page(json.loads(options.measured.read_text()))
    if options.out is None:
        print(text)
        return
    before = options.out.read_text() if options.out.exists() else ""
    options.out.write_text(text + before[before.find(NOTES) :] if NOTES in before else text)


if __name__ == "__main__":
    main()
