"""Simulation against reality: one workload of real jobs under four policies, live and simulated.

`python -m benchmarks.reality` (`make reality`) calibrates, runs the workload through a real daemon once for
each policy, simulates the same with the calibrated costs, replays the event logs, and writes the report into
docs/results/reality. It takes about nine minutes; keep the machine otherwise idle.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from benchmarks import reality_report as report
from benchmarks.reality_compare import RealityComparison, compared
from benchmarks.reality_costs import Costs, calibrated
from benchmarks.reality_live import LiveRun, run_live
from benchmarks.reality_workload import (
    CALIBRATED_UNDER,
    CALIBRATION,
    POLICIES,
    SIZES,
    SLOTS,
    WORKLOAD,
    PlannedJob,
    PolicySetup,
    drawn,
)

OUT = Path(__file__).parents[1] / "docs" / "results" / "reality"


def lived(jobs: Sequence[PlannedJob], policy: PolicySetup) -> LiveRun:
    """Run in a temporary folder."""
    folder = Path(tempfile.mkdtemp(prefix="tm-reality-"))
    try:
        run = run_live(folder, jobs, policy)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    failed = [story.planned.name for story in run.stories if not story.has_succeeded]
    if failed or len(run.stories) != len(jobs):
        raise SystemExit(f"{policy.name}: not all jobs succeeded: {failed}")
    return run


def calibrate() -> Costs:
    run = lived(drawn(*CALIBRATION), CALIBRATED_UNDER)
    return calibrated(run.stories, [size for size, _ in SIZES])


def simulate_reads(trace: str, count: int) -> None:
    """`trainmaster simulate` takes what `trainmaster record` wrote, and ends every job of it."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "recorded.csv"
        file.write_text(trace)
        command = [sys.executable, "-m", "trainmaster", "simulate", str(file), "--cluster", SLOTS]
        said = subprocess.run(
            [*command, "--policy", "fifo", "--perf", "ideal", "--json", "-"],
            check=True,
            capture_output=True,
            text=True,
        )
    summary = json.loads(said.stdout)["results"][0]["summary"]
    if summary["finished"] != count:
        raise SystemExit(f"simulate ended {summary['finished']} of {count} recorded jobs")


def show(each: RealityComparison) -> None:
    errors = each.errors
    print(
        f"{each.policy.name:12} mean JCT {100 * errors.mean_jct:+.1f} %"
        f"  makespan {100 * errors.makespan:+.1f} %  per job p50 {100 * errors.p50:.1f} %"
        f" p90 {100 * errors.p90:.1f} % (jitter alone {100 * each.sensitivity.p90:.1f} %)"
        f"  tau {each.kendall_tau:.3f}  {each.unlike} of {each.steps} steps replayed unlike"
        f"  processors {100 * each.cpu_part:.0f} %",
        flush=True,
    )


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--out", type=Path, default=OUT, help="where the report goes")
    parser.add_argument("--jobs", type=int, default=WORKLOAD[0], help="how many, for trying out")
    chosen = parser.parse_args(arguments)
    print("calibrating", flush=True)
    costs = calibrate()
    print(json.dumps(costs.perf()), flush=True)
    jobs = drawn(chosen.jobs, *WORKLOAD[1:])
    found = []
    for policy in POLICIES:
        run = lived(jobs, policy)
        simulate_reads(run.trace, len(jobs))
        found.append(compared(run, costs))
        show(found[-1])
    when = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
    report.write(chosen.out, found, costs, when)
    kept = report.has_kept(found)
    print("kept: " + ", ".join(f"{name} {value}" for name, value in kept.items()))
    print(f"wrote {chosen.out}")
    is_same = not any(each.unlike for each in found)
    return 0 if all(kept.values()) and is_same else 1


if __name__ == "__main__":
    sys.exit(main())
