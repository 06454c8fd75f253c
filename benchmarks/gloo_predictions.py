"""Predicted against measured speeds of gloo trainings, before and after correction, as a table.

Known before: the step on one rank, the parameter bytes, and one bandwidth and latency by all-reduces
without any training. A correction adds the measured steps on fewer ranks, never that of the row itself.

    python -m benchmarks.gloo_predictions gloo.json
"""

from __future__ import annotations

import argparse
import json
import statistics
from pathlib import Path
from typing import Any

from trainmaster.estimators.allocation import Allocation
from trainmaster.estimators.interconnect import GB, Links
from trainmaster.estimators.step_time import timeline
from trainmaster.estimators.throughput_calibration import NOTHING_MEASURED, fit_scales
from trainmaster.model.profile import Profile


def links_of(by_ranks: dict[int, Any]) -> Links:
    """Medians over the numbers of ranks: latency by the smallest all-reduce, bandwidth by the largest."""
    latencies, bandwidths = [], []
    for ranks, found in by_ranks.items():
        times = {int(size): span for size, span in found["all_reduce_s"].items()}
        if times:
            hops, size = 2 * (ranks - 1), max(times)
            latency = times[min(times)] / hops
            latencies.append(latency)
            bandwidths.append(hops * size / ranks / (times[size] - hops * latency))
    bandwidth, latency = statistics.median(bandwidths), statistics.median(latencies)
    return Links().with_level("node", bandwidth / GB, round(latency * 1e6))


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


def table(measured: dict[str, Any]) -> str:
    by_ranks = {int(ranks): found for ranks, found in measured["by_ranks"].items()}
    links = links_of(by_ranks)
    link = links.at("node")
    lines = [
        f"{measured['cores']} cores, torch {measured['torch']}; all-reduces: "
        f"{link.bytes_per_s / GB:.2f} GB/s, {link.latency_us} µs per hop.",
        "",
        "| model | ranks | measured samples/s | before | error | after | error |",
        "|---|---:|---:|---:|---:|---:|---:|",
    ]
    for model in by_ranks[1]["models"]:
        for ranks, speed, before, after in rows(by_ranks, model, links):
            lines.append(
                f"| {model} | {ranks} | {speed:.0f} | {before:.0f} | {before / speed - 1:+.0%} "
                f"| {after:.0f} | {after / speed - 1:+.0%} |"
            )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("measured", type=Path, help="what gloo_speed.py wrote")
    print(table(json.loads(parser.parse_args().measured.read_text())))


if __name__ == "__main__":
    main()
