"""A live job is resized 1, 2, 4, 8, 4, 2 by max-min: its speed at each size against the prediction.

    python -m benchmarks.elastic_speed [--slots 8] [--seconds 8] [--out benchmarks/results/elastic-speed.json]
    python -m benchmarks.elastic_speed --page      # only write the page of what --out has

A manager of its own gives each CPU slot an equal part of the cores. Other jobs hold slots, and end and come
back, so that max-min grows and shrinks the job that learns. Predictions are those of the policy's own memo
just before each resize: the recorded events are replayed for them. Afterwards the same program learns on a
fixed number of slots, to compare losses. Needs torch.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from itertools import groupby, pairwise
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.fresh_process import write_report
from benchmarks.pages import page
from tests.live.daemons import LiveDaemon, live
from trainmaster.config.links import links_text
from trainmaster.daemon.recovery import Replayed, from_snapshot, replay_step
from trainmaster.mechanisms.reallocating_policy import ReallocationMemo
from trainmaster.mechanisms.speedup_curves import Curves
from trainmaster.model.actions import Reshape
from trainmaster.model.codec import loads
from trainmaster.model.units import NOMINAL
from trainmaster.profiling.links import LinkMeter
from trainmaster.store.rows import SnapshotRow, StepRow

HERE = Path(__file__).parent
JOB = HERE / "elastic_speed_job.py"
PAGE = Path("docs/measurements/elastic-speed.md")
CASES = {
    "mlp, 16 samples": 64,
    "mlp, 256 samples": 512,
    "convolutions": 64,
    "transformer": 16,
}
"""Models, and the samples of a step over all ranks."""
SIZES = (1, 2, 4, 8, 4, 2)
FIXED = 4
EPOCH = 10
"""Steps of an epoch."""
SETTLED_STEPS = 3
"""At the beginning of each size, that are not counted."""
STAYS_S = 30.0
"""How long the policy is given to resize, before its answer is taken to be no."""
PATIENCE_S = 90.0
POLL_S = 0.2


class Step(NamedTuple):
    """What one rank has written of one step."""

    number: int
    rank: int
    ranks: int
    at: float
    loss: float
    samples: tuple[int, ...]


# -- one job -------------------------------------------------------------------------------------------------


class Learning:
    """A job of the program under the manager."""

    def __init__(self, daemon: LiveDaemon, folder: Path, case: str, gpus: str) -> None:
        folder.mkdir(parents=True)
        self.daemon = daemon
        self.folder = folder
        words = [sys.executable, str(JOB), str(folder), case, str(CASES[case]), str(EPOCH)]
        said = {"gpus": gpus, "ranks": "gpu", "stays_in_memory": False, "retries": 0}
        self.id = daemon.submit(command=words, workdir=str(folder), name="elastic", **said)

    def steps(self) -> list[Step]:
        return [
            _step(line)
            for file in self.folder.glob("rank-*")
            for line in file.read_text().splitlines(keepends=True)
            if line.endswith("\n")
        ]

    def trains_on(self) -> int:
        """How many ranks the newest step had; 0 before the first."""
        state = self.daemon.job(self.id)["state"]
        if state in ("failed", "cancelled", "succeeded"):
            raise SystemExit(f"job {self.id} has {state}: {self.daemon.log(self.id)[-2000:]}")
        return max(((each.number, each.ranks) for each in self.steps()), default=(0, 0))[1]

    def until_on(self, ranks: int, patience_s: float) -> bool:
        until = time.monotonic() + patience_s
        while self.trains_on() != ranks:
            if time.monotonic() > until:
                return False
            time.sleep(POLL_S)
        return True

    def train(self, seconds: float, steps: int) -> None:
        """For so long, and so many steps more."""
        first, until = self.last(), time.monotonic() + seconds
        while time.monotonic() < until or self.last() < first + steps:
            self.trains_on()
            time.sleep(POLL_S)

    def last(self) -> int:
        return max((each.number for each in self.steps()), default=0)

    def cancel(self) -> None:
        self.daemon.call("POST", f"/api/v1/jobs/{self.id}/cancel", {})
        self.daemon.until_state(self.id, "cancelled")


def _step(line: str) -> Step:
    number, rank, ranks, at, loss, seen = line.rstrip("\n").split(" ")
    samples = tuple(map(int, filter(None, seen.split(","))))
    return Step(int(number), int(rank), int(ranks), float(at), float(loss), samples)


class Neighbours:
    """Jobs that hold one slot each and do nothing."""

    def __init__(self, daemon: LiveDaemon) -> None:
        self._daemon = daemon
        self._jobs: list[str] = []

    def hold(self, count: int) -> None:
        while len(self._jobs) > count:
            self._daemon.call("POST", f"/api/v1/jobs/{self._jobs.pop()}/cancel", {})
        while len(self._jobs) < count:
            words = [sys.executable, "-S", "-c", "import time; time.sleep(3600)"]
            where = str(self._daemon.folder)
            id = self._daemon.submit(command=words, workdir=where, gpus=1, preemptible=False)
            self._jobs.append(id)
            self._daemon.until_state(id, "running")


# -- measuring -----------------------------------------------------------------------------------------------


def measured(
    folder: Path, slots: int, seconds: float, cases: Sequence[str]
) -> list[dict[str, Any]]:
    """What came of each case."""
    data = folder / "data"
    data.mkdir()
    links = folder / "links.yaml"
    link = LinkMeter(sys.executable, 1.0, PATIENCE_S).between_devices(min(4, slots), on_gpus=False)
    links.write_text(links_text((("node", link),)))
    print(links.read_text(), flush=True)
    found = []
    with live(data, "--slots", str(slots), "--policy", "max-min", "--links", str(links)) as daemon:
        for case in cases:
            print(f"--- {case}", flush=True)
            found.append(_case(daemon, folder / case.replace(" ", "-"), case, slots, seconds))
            print(json.dumps({**found[-1], "stays": [*found[-1]["stays"]]}), flush=True)
        with daemon.open("/api/v1/record/events") as answer:
            lines = str(answer.read().decode()).splitlines()
    for each in found:
        each["predicted"] = predictions(lines, each["job"])
    return found


def _case(
    daemon: LiveDaemon, folder: Path, case: str, slots: int, seconds: float
) -> dict[str, Any]:
    neighbours = Neighbours(daemon)
    neighbours.hold(slots - 1)
    job = Learning(daemon, folder / "resized", case, f"1-{slots}")
    stays: list[dict[str, Any]] = []
    for ranks in sizes(slots):
        neighbours.hold(slots - ranks)
        is_there = job.until_on(ranks, STAYS_S if stays else PATIENCE_S)
        stays.append({"asked": ranks, "ranks": job.trains_on(), "from_step": job.last()})
        if is_there:
            job.train(seconds, 2 * SETTLED_STEPS)
            stays[-1]["samples_per_s"] = speed(job.steps(), stays[-1]["from_step"], CASES[case])
    steps = job.last()
    job.cancel()
    neighbours.hold(0)
    fixed = Learning(daemon, folder / "fixed", case, str(FIXED))
    fixed.train(0.0, steps)
    fixed.cancel()
    rows = job.steps()
    return {
        "case": case,
        "batch": CASES[case],
        "job": job.id,
        "stays": stays,
        "story": resizes(daemon, job.id),
        "whole_epochs": epochs(rows, CASES[case]),
        "losses_apart": apart(rows, fixed.steps()),
        "steps": steps,
        "profile": daemon.job(job.id)["profile"],
    }


def sizes(slots: int) -> list[int]:
    """Those that this many slots allow."""
    return [size for size, _ in groupby(each for each in SIZES if each <= slots)]


def speed(rows: Iterable[Step], after: int, batch: int) -> float:
    """Samples per second of the newest steps with the same ranks, by their median."""
    ends = sorted({(each.number, each.at) for each in rows if each.rank == 0})
    settled = [at for number, at in ends if number >= after + SETTLED_STEPS]
    return batch / statistics.median(later - at for at, later in pairwise(settled))


def resizes(daemon: LiveDaemon, id: str) -> list[dict[str, Any]]:
    told = daemon.call("GET", f"/api/v1/jobs/{id}/story")["story"]
    wanted = ("resized", "resize timed")
    return [{"what": each["what"], **each["detail"]} for each in told if each["what"] in wanted]


def epochs(rows: Iterable[Step], batch: int) -> dict[str, int]:
    """Whole epochs, and in how many of them each sample was seen once."""
    seen: dict[int, Counter[int]] = defaultdict(Counter)
    for each in rows:
        seen[(each.number - 1) // EPOCH].update(each.samples)
    whole = [each for each in seen.values() if each.total() >= EPOCH * batch]
    once = Counter(range(EPOCH * batch))
    return {"whole": len(whole), "each_sample_once": sum(each == once for each in whole)}


def apart(rows: Iterable[Step], others: Iterable[Step]) -> dict[str, float]:
    """The largest relative difference of the losses of a step, and that of the last one that both made."""
    by_step = [
        {each.number: each.loss for each in some if each.rank == 0} for some in (rows, others)
    ]
    both = sorted(by_step[0].keys() & by_step[1].keys())
    differences = [abs(by_step[0][step] / by_step[1][step] - 1) for step in both]
    return {"largest": max(differences), "last": differences[-1], "steps": len(both)}


# -- predicting ----------------------------------------------------------------------------------------------


def predictions(lines: Iterable[str], job: str) -> list[dict[str, Any]]:
    """At each resize of the job: the speed that the policy expected there, in parts of that on one slot."""
    found: Replayed | None = None
    rows = []
    for line in lines:
        said = json.loads(line)
        if "snapshot" in said:
            text = json.dumps(said["snapshot"])
            found = from_snapshot(SnapshotRow(said["seq"], said["now_ms"], text))
            continue
        assert found is not None
        events, orders = json.dumps(said["events"]), json.dumps(said["orders"])
        replay_step(found, StepRow(said["seq"], said["now_ms"], events, orders))
        given = loads(orders)
        assert isinstance(given, tuple)
        rows += [_prediction(found, each) for each in given if _resizes(each, job)]
    return rows


def _resizes(order: object, job: str) -> bool:
    return isinstance(order, Reshape) and order.run.job == job


def _prediction(found: Replayed, order: Reshape) -> dict[str, Any]:
    """Decided in this very step: by all that was measured before it, and nothing of the new size."""
    controller = found.controller
    memo, record = controller.memo, controller.state.jobs[order.run.job]
    assert isinstance(memo, ReallocationMemo)
    curves, corrections = Curves(controller.state.topology), memo.measured.corrections
    speed_ppm = curves.speed(record, order.placement, corrections)
    return {"ranks": len(order.placement.slices), "speed_ppm": speed_ppm}


# -- the page ------------------------------------------------------------------------------------------------


def page_of(figures: dict[str, Any]) -> str:
    """Each size of each case: what it was, what was expected, and what linear scaling would be."""
    rows = [row for case in figures["cases"] for row in _rows(case)]
    judged = [row for row in rows if row["error"] is not None]
    back = [row for row in judged if row["is_back"]]
    first = [row for row in judged if not row["is_back"]]
    medians = {
        name: _percent(statistics.median(abs(row[error]) for row in some)) if some else ""
        for name, some, error in (
            ("first", first, "error"),
            ("first_linear", first, "linear_error"),
            ("back", back, "error"),
            ("back_linear", back, "linear_error"),
        )
    }
    for row in judged:
        row |= {name: f"{row[name]:+.0%}" for name in ("error", "linear_error")}
    return page("elastic_speed_page.md", rows=rows, medians=medians, fixed=FIXED, **figures)


def _rows(case: dict[str, Any]) -> list[dict[str, Any]]:
    """A prediction is that of the resize that led to the stay; the first stay has none."""
    alone = case["stays"][0]["samples_per_s"]
    left, seen, found = [*case["predicted"]], {1}, list[dict[str, Any]]()
    for stay in case["stays"]:
        ranks, speed = stay["ranks"], stay.get("samples_per_s")
        row = {"case": case["case"], "batch": case["batch"], "asked": stay["asked"], "ranks": ranks}
        row |= {"speed": speed, "predicted": None, "error": None, "is_back": ranks in seen}
        expected = None
        while left and found and found[-1]["ranks"] != ranks:  # it may take several resizes
            expected = left.pop(0)
            if expected["ranks"] == ranks:
                break
        if expected is not None and speed is not None:
            row["predicted"] = alone * expected["speed_ppm"] / NOMINAL
            row |= {
                "error": row["predicted"] / speed - 1,
                "linear_error": alone * ranks / speed - 1,
            }
        seen.add(ranks)
        found.append(row)
    return found


def _percent(part: float) -> str:
    return f"{part:.0%}"


def main() -> None:
    flags = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    flags.add_argument("--slots", type=int, default=8)
    flags.add_argument("--seconds", type=float, default=8.0, help="at each size")
    flags.add_argument("--cases", default=";".join(CASES), help="models, with ; between")
    flags.add_argument("--out", type=Path, default=Path("benchmarks/results/elastic-speed.json"))
    flags.add_argument("--page", action="store_true", help="Only write the page of what --out has.")
    asked = flags.parse_args()
    if not asked.page:
        load = round(os.getloadavg()[0], 2)
        with tempfile.TemporaryDirectory(prefix="tm-") as name:
            found = measured(Path(name), asked.slots, asked.seconds, asked.cases.split(";"))
        cores = len(os.sched_getaffinity(0))
        write_report(asked.out, cores=cores, slots=asked.slots, load_before=load, cases=found)
        return
    PAGE.write_text(page_of(json.loads(asked.out.read_text())))


if __name__ == "__main__":
    main()
