"""Forecasts of a job: how much work is left, and its speed by number of workers.

Learned (`fit`): work from the convergence of the fitted loss curve, speed from the parameter-server
model fitted to measured speeds, servers tied to workers. Until there are enough reports, and always
with `given`: the estimate of run time, and the declared or predicted curve of speeds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import exp, log

from trainmaster.core.state import JobRecord
from trainmaster.estimators.convergence import informative_samples, total_work
from trainmaster.estimators.throughput import UNKNOWN, Estimator
from trainmaster.model.progress import Sample
from trainmaster.model.topology import Topology
from trainmaster.model.units import MINUTE, NOMINAL
from trainmaster.policies.optimus import parameter_server

AT_LEAST = MINUTE * NOMINAL
"""Minimum remaining work assumed for a live job."""
FEW_POINTS = 8
"""Curves with up to this many points are fitted to all of them."""
PRIOR_WEIGHT = 0.1
"""Weight of a point of the expected curve, relative to a measured one."""

Speeds = Mapping[int, float]
"""By workers: parts per million of nominal."""


class ConvergenceForecasts:
    """Forecasts on one cluster; everything in it is cached."""

    def __init__(self, topology: Topology, *, learns: bool, unknown_ms: int) -> None:
        self._estimator = Estimator(topology)
        self._learns = learns
        self._unknown = unknown_ms * NOMINAL
        """Work of a job of which nothing is known."""
        self._totals: dict[int, tuple[list[Sample], float | None]] = {}
        self._speeds: dict[int, tuple[object, Speeds]] = {}

    def forget(self, record: JobRecord) -> None:
        """An ended job needs no forecast."""
        self._totals.pop(record.seq, None)
        self._speeds.pop(record.seq, None)

    # -- work ------------------------------------------------------------------------------------

    def work_left(self, record: JobRecord, now: int) -> float:
        """In ms x parts per million."""
        done = record.work_at(now)
        total = self._fitted_total(record) if self._learns and record.samples else None
        if total is None:
            known = record.estimate
            total = known.work if known is not None else done + max(done, self._unknown)
        return max(float(AT_LEAST), total - done)

    def _fitted_total(self, record: JobRecord) -> float | None:
        informative, known = informative_samples(record.samples), self._totals.get(record.seq)
        if known is None or known[0] != informative:
            known = self._totals[record.seq] = (informative, total_work(informative))
        return known[1]

    # -- speed -----------------------------------------------------------------------------------

    def speeds(self, record: JobRecord) -> Speeds:
        """For every number of workers that it accepts and the cluster has."""
        measured = self._measured(record)
        key = (record.profile, tuple(measured.items()))
        known = self._speeds.get(record.seq)
        if known is None or known[0] != key:
            known = self._speeds[record.seq] = (key, self._made(record, measured))
        return known[1]

    def _measured(self, record: JobRecord) -> Speeds:
        """The means of its reports; and its nominal size, whose speed is the unit of all others."""
        if not self._learns or not record.samples:
            return {}
        return {record.demand.nominal.count: float(NOMINAL), **measured_speeds(record.samples)}

    def _made(self, record: JobRecord, measured: Speeds) -> Speeds:
        demand, profile = record.demand, record.profile or UNKNOWN
        counts = range(demand.min_count, demand.max_count + 1)
        expected: Speeds = dict(self._estimator.curve(record.job, profile, counts))
        return fitted_speeds(expected, measured) if measured else expected


def measured_speeds(samples: Sequence[Sample]) -> Speeds:
    """By workers: the mean of the first 1, 2, 4, 8 … reports, so that it changes seldom."""
    found: dict[int, list[int]] = {}
    for sample in samples:
        found.setdefault(sample.gpus, []).append(sample.speed_ppm)
    means = {}
    for count in sorted(found):
        some = found[count][: 1 << (len(found[count]).bit_length() - 1)]
        means[count] = sum(some) / len(some)
    return means


def _supporting(expected: Speeds, known: Speeds) -> list[int]:
    """Numbers of workers to fit: all if they are few, else the ends, measured ones and powers of two."""
    if len(expected) <= FEW_POINTS:
        return sorted(expected)
    high = max(expected)
    powers = (1 << n for n in range(high.bit_length()))
    return sorted(n for n in {*known, min(expected), high, *powers} if n in expected)


def fitted_speeds(expected: Speeds, measured: Speeds) -> Speeds:
    """The synchronous model through what was measured, and weakly through the expected curve.

    The expected curve is scaled to what was measured first, so that only its shape counts; points
    that were measured override the fit.
    """
    known = {count: speed for count, speed in measured.items() if count in expected}
    if not known:
        return expected
    logs = [log(speed / expected[count]) for count, speed in known.items()]
    scale = exp(sum(logs) / len(logs))
    points, trust = [], []
    for count in _supporting(expected, known):
        points.append((count, count, known.get(count, expected[count] * scale)))
        trust.append(1.0 if count in known else PRIOR_WEIGHT)
    model = parameter_server.fit_speed_model(points, batch=1.0, trust=trust)
    if model is None:
        return {count: known.get(count, expected[count] * scale) for count in expected}
    return {count: max(1.0, model.speed(count, count)) for count in expected}
