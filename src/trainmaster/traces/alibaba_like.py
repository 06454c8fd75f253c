"""A synthetic trace like Alibaba's GPU-sharing cluster: many jobs on parts of a GPU, few on several.

The tables are statistics of the trace that was released with ATC'23, `openb_pod_list_default.csv` (CC BY
4.0): 6,203 pods that used GPUs and ran. `docs/traces.md` has them and says what is ours.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from trainmaster.model.job import Job
from trainmaster.model.trace import Outcome, Trace, TracedJob
from trainmaster.model.units import WHOLE
from trainmaster.traces.csv_reader import demand_for
from trainmaster.traces.drawing import (
    Floats,
    Ints,
    arrivals,
    check_arguments,
    log_quantile,
    pick,
    whole_seconds,
)

SHARES = (
    *((110, 25), (160, 71), (220, 60), (230, 94), (270, 5), (320, 295), (350, 5), (370, 46)),
    *((460, 128), (470, 455), (480, 19), (550, 71), (590, 62), (650, 218), (810, 1017)),
    *((1000, 3556), (2000, 15), (4000, 15), (8000, 44)),
)
"""Thousandths of a GPU, and pods that asked for so much; rare shares count for their neighbours."""
LONGEST_MIN = 28_800.0
"""Twenty days, as in traces like Philly's; one pod in 500 ran longer."""
MOST = max(share for share, _ in SHARES)
PARTS = (0.0, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99, 1.0)
MINUTES = {
    "part": (
        *(0.1, 0.6, 0.9, 1.7, 2.9, 4.8, 9.0, 15.5, 21.4, 47.9, 153.6, 337.6, 1275.0),
        LONGEST_MIN,
    ),
    "one": (
        *(0.1, 0.9, 1.3, 3.0, 4.2, 7.6, 12.6, 20.2, 32.9, 58.9, 100.4, 220.5, 3995.0),
        LONGEST_MIN,
    ),
    "several": (
        *(0.4, 0.6, 0.8, 2.3, 4.3, 8.3, 10.9, 27.9, 60.1, 263.7, 1120.1, 3121.7, 17886.4),
        22206.0,
    ),
}
"""Run times at these quantiles, for pods on part of a GPU, on one and on several."""
ENDS = {"part": (0, 1412, 1161), "one": (178, 2726, 652), "several": (7, 11, 56)}
"""Pods that succeeded, were deleted while they ran, and failed."""
_OUTCOMES = (Outcome.SUCCEEDED, Outcome.CANCELLED, Outcome.FAILED)
USERS = 40
"""The trace has none: drawn with the weights of Zipf's law, all in one queue."""


def generate(jobs: int, gpus: int, load: float, seed: int) -> Trace:
    """A trace of `jobs` jobs that offers exactly this load to `gpus` GPUs, to the millisecond."""
    check_arguments(jobs, gpus, load, seed)
    rng = np.random.Generator(np.random.PCG64(seed))
    fitting = [(share, pods) for share, pods in SHARES if share <= gpus * WHOLE]
    chosen = pick([pods for _, pods in fitting], rng.random(jobs))
    shares = np.array([share for share, _ in fitting], dtype=np.int64)[chosen]
    services = _services(shares, rng.random(jobs))
    ends = _ends(shares, rng.random(jobs))
    span = round(float(np.dot(shares / WHOLE, services)) / (gpus * load))
    submits = arrivals(rng.random(jobs), span)
    users = pick([1 / (n + 1) for n in range(USERS)], rng.random(jobs))
    rows = zip(
        *(column.tolist() for column in (submits, shares, services, ends, users)), strict=True
    )
    made = []
    for index, (submit, share, service, end, user) in enumerate(rows):
        whole = share // WHOLE
        demand = demand_for(whole) if whole else demand_for(1, share)
        job = Job(id=f"j{index}", submit_ms=submit, demand=demand, user=f"u{user}")
        made.append(TracedJob(job, service, _OUTCOMES[end]))
    return Trace(jobs=tuple(made))


def _of(name: str, shares: Ints) -> npt.NDArray[np.bool_]:
    least, most = {"part": (0, WHOLE - 1), "one": (WHOLE, WHOLE)}.get(name, (WHOLE + 1, MOST))
    return np.logical_and(shares >= least, shares <= most)


def _services(shares: Ints, uniform: Floats) -> Ints:
    services = np.zeros(len(shares), dtype=np.int64)
    for name, minutes in MINUTES.items():
        here = _of(name, shares)
        points = list(zip(minutes, PARTS, strict=True))
        services[here] = whole_seconds(log_quantile(points, uniform[here]))
    return services


def _ends(shares: Ints, uniform: Floats) -> Ints:
    """How each job ends; it does not depend on the run time."""
    ends = np.zeros(len(shares), dtype=np.int64)
    for name, pods in ENDS.items():
        here = _of(name, shares)
        ends[here] = pick(pods, uniform[here])
    return ends
