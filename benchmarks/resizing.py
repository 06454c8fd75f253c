"""How long a resize takes from its order to the first step at the new size, part by part: in place and by a
restart from a checkpoint, in turns, in one run on this machine.

    python -m benchmarks.resizing [--rounds 3] [--layers 8] [--width 1024]
                                  [--out benchmarks/results/resizing.json]

Each round resizes one job 1, 2, 4, 2, 1 in place and another one by restarts. Both have the same program; the
second does not tell that it can be resized. Needs torch.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import sys
import tempfile
from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from benchmarks.fresh_process import write_report
from benchmarks.pages import page
from trainmaster.engines.local.engine import LocalEngine
from trainmaster.model.actions import Kill, Launch, Reshape
from trainmaster.model.engine_reports import Ended, Progressed, Report, Reshaped, ResizeTimed
from trainmaster.model.job import Run
from trainmaster.model.launch_spec import LaunchSpec
from trainmaster.model.placement import Placement, Slice
from trainmaster.model.topology import parse_shorthand

JOB = Path(__file__).with_name("resizing_job.py")
PAGE = Path("docs/measurements/resizing.md")
SIZES = (1, 2, 4, 2, 1)
WAYS = ("in-place", "restart")
PARTS = (
    *("order_ms", "warm_up_ms", "boundary_ms", "regroup_ms", "broadcast_ms"),
    *("stop_ms", "start_ms", "first_step_ms"),
)
"""From the order to the first step."""
STILL = ("regroup_ms", "broadcast_ms", "stop_ms", "start_ms", "first_step_ms")
"""Parts in which nothing is trained; the last one includes a step."""
UNTIL_FREED = ("order_ms", "warm_up_ms", "boundary_ms", "regroup_ms", "broadcast_ms", "leave_ms")
"""Of a resize in place: from the order until ranks that leave have ended."""
PATIENCE_S = 300.0
SETTLED_STEPS = 3


class Job:
    """One job under the engine, with what it has told."""

    def __init__(self, engine: LocalEngine, run: Run, spec: LaunchSpec) -> None:
        self.engine = engine
        self.run = run
        self.spec = spec
        self.reports: list[Report] = []

    async def start(self) -> None:
        await self.engine.execute(Launch(self.run, _placed(SIZES[0]), 0), self.spec)
        await self._steps(0)

    async def resize(self, count: int) -> tuple[Reshaped, ResizeTimed]:
        before = len(self.reports)
        await self.engine.execute(Reshape(self.run, _placed(count)), self.spec)
        reshaped = await self._heard(Reshaped, before)
        timed = await self._heard(ResizeTimed, before)
        assert isinstance(reshaped, Reshaped)
        assert isinstance(timed, ResizeTimed)
        await self._steps(len(self.reports))
        return reshaped, timed

    async def end(self) -> None:
        await self.engine.execute(Kill(self.run), self.spec)
        await self._heard(Ended, 0)

    async def _steps(self, after: int) -> None:
        await self._heard(Progressed, after, SETTLED_STEPS)

    async def _heard(self, kind: type[Report], after: int, count: int = 1) -> Report:
        for _ in range(round(PATIENCE_S / 0.02)):
            found = [each for each in self.reports[after:] if isinstance(each, kind)]
            if len(found) >= count:
                return found[-1]
            over = [each for each in self.reports if isinstance(each, Ended)]
            if over:
                raise SystemExit(f"The job ended: {over[0]}")
            await asyncio.sleep(0.02)
        raise SystemExit(f"No {kind.__name__} in {PATIENCE_S:.0f} s.")


def _placed(count: int) -> Placement:
    return Placement(tuple(Slice(0, slot) for slot in range(count)), span=0)


async def measured(folder: Path, rounds: int, layers: int, width: int) -> list[dict[str, object]]:
    """One row for each resize."""
    engine = LocalEngine(folder, parse_shorthand("1x4"))
    jobs: dict[Run, Job] = {}
    await engine.open(lambda report, _: jobs[report.run].reports.append(report))
    rows: list[dict[str, object]] = []
    try:
        for number in range(rounds * len(WAYS)):
            way = WAYS[number % len(WAYS)]
            run = Run(str(number + 1), 1)
            command = (sys.executable, str(JOB), way, str(layers), str(width))
            kept = str(folder / f"checkpoints-{number}")
            job = jobs[run] = Job(engine, run, LaunchSpec(command, str(folder), kept))
            await job.start()
            for before, after in pairwise(SIZES):
                reshaped, timed = await job.resize(after)
                assert reshaped.in_place is (way == "in-place"), reshaped
                parts = {name: getattr(timed, name) or 0 for name in (*PARTS, "leave_ms")}
                rows.append({"way": way, "from": before, "to": after, **parts})
                print(rows[-1], flush=True)
            await job.end()
    finally:
        await engine.close()
    return rows


def summary(rows: Sequence[Mapping[str, object]]) -> list[dict[str, object]]:
    """Medians by resize and way, with the time in all, without training, and the ratios of both."""
    grouped: dict[tuple[object, object, object], list[Mapping[str, object]]] = defaultdict(list)
    for row in rows:
        grouped[row["from"], row["to"], row["way"]].append(row)
    found: dict[tuple[object, object, object], dict[str, object]] = {}
    for key, those in grouped.items():
        medians = {name: _median(those, (name,)) for name in PARTS}
        found[key] = {
            "from": key[0],
            "to": key[1],
            "way": key[2],
            "resizes": len(those),
            "whole_ms": _median(those, PARTS),
            "still_ms": _median(those, STILL),
            "freed_ms": _median(those, UNTIL_FREED),
            **medians,
        }
    for (before, after, way), row in found.items():
        other = found.get((before, after, "restart"))
        if way == "in-place" and other is not None:
            row["whole_to_restart"] = _ratio(row["whole_ms"], other["whole_ms"])
            row["still_to_restart"] = _ratio(row["still_ms"], other["still_ms"])
    return [*found.values()]


def _median(rows: Sequence[Mapping[str, object]], names: Sequence[str]) -> float:
    return statistics.median(sum(int(str(row[name])) for name in names) for row in rows)


def _ratio(ours: object, theirs: object) -> float:
    return round(float(str(ours)) / max(1.0, float(str(theirs))), 3)


def main() -> None:
    flags = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    flags.add_argument("--rounds", type=int, default=3)
    flags.add_argument("--layers", type=int, default=8)
    flags.add_argument("--width", type=int, default=1024)
    flags.add_argument("--out", type=Path, default=Path("benchmarks/results/resizing.json"))
    flags.add_argument("--page", action="store_true", help="Only write the page of what --out has.")
    asked = flags.parse_args()
    if not asked.page:
        measure(asked)
    PAGE.write_text(page_of(json.loads(asked.out.read_text())))


def measure(asked: argparse.Namespace) -> None:
    load_before = round(os.getloadavg()[0], 2)
    with tempfile.TemporaryDirectory(prefix="tm-") as folder:
        rows = asyncio.run(measured(Path(folder), asked.rounds, asked.layers, asked.width))
    parameters = asked.layers * (asked.width**2 + asked.width)
    write_report(
        asked.out,
        cores=os.cpu_count(),
        load_before=load_before,
        load_after=round(os.getloadavg()[0], 2),
        parameters=parameters,
        summary=summary(rows),
        resizes=rows,
    )


def page_of(figures: dict[str, Any]) -> str:
    """The page, with the resizes in the order in which they were made."""
    order = {pair: place for place, pair in enumerate(pairwise(SIZES))}
    rows = sorted(figures["summary"], key=lambda row: (order[row["from"], row["to"]], row["way"]))
    whole = [
        {name: round(value) if name.endswith("_ms") else value for name, value in row.items()}
        for row in rows
    ]
    ratios = [row | {"freed": _freed(row)} for row in whole if "whole_to_restart" in row]
    return page(
        "resizing_page.md",
        rows=whole,
        ratios=ratios,
        parameters=round(figures["parameters"] / 1e6, 1),
        resizes=rows[0]["resizes"],
        **{name: figures[name] for name in ("cores", "load_before", "load_after")},
    )


def _freed(row: Mapping[str, Any]) -> str:
    return f"{row['freed_ms']} ms" if row["to"] < row["from"] else ""


if __name__ == "__main__":
    main()
