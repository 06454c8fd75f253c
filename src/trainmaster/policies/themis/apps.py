"""Themis apps (one or more jobs that belong together), and the value of GPUs to them.

The value is based on finish-time fairness, rho (NSDI'20, section 3): the time an app takes with a share of
the cluster, relative to its time with a fair share.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from math import inf

from trainmaster.core.lifecycle import HIDDEN_PHASES, WAITING
from trainmaster.core.state import JobRecord
from trainmaster.model.codec import stored_as
from trainmaster.model.plan import FrozenMap
from trainmaster.model.units import MINUTE, NOMINAL

Grant = tuple[tuple[JobRecord, int], ...]
"""Jobs of an app, and how many GPUs each would get."""
SpeedOf = Callable[[JobRecord, int], int | None]
"""Speed in parts per million of nominal on a number of offered GPUs; None if they do not fit."""
FEW_JOBS = 16
AT_LEAST = MINUTE * NOMINAL
"""Minimum remaining work assumed for a job without an estimate, or whose estimate was too short."""


def rho(elapsed: float, left: float, speed: float, alone: float) -> float:
    """T_sh / T_id: the time so far and to the end at this speed, against that of a fair share.

    `elapsed` and `alone` in one unit of time, `left` in work, `speed` in work per that unit: the
    paper's iter_left x iter_time(G) is `left / speed`.
    """
    return (elapsed + left / speed) / alone if alone > 0 and speed > 0 else inf


@stored_as("themis.AppCount")
@dataclass(frozen=True, slots=True)
class ActiveAppsIntegral:
    """The number of active apps integrated over time, for the mean over an app's lifetime."""

    area: int = 0
    """Apps x ms up to `counted_ms`."""
    counted_ms: int = 0
    apps: int = 0
    arrived: FrozenMap[str, tuple[int, int]] = field(default_factory=FrozenMap)
    """By app: its arrival time, and the area at that time."""

    def counted(self, apps: Mapping[str, object], now: int) -> ActiveAppsIntegral:
        """Updated with the apps that are active now."""
        new = [name for name in apps if name not in self.arrived]
        if not new and self.apps == len(apps):
            return self
        area = self._area_at(now)
        arrived = self.arrived.updated(dict.fromkeys(new, (now, area))).only(apps)
        return ActiveAppsIntegral(area, now, len(apps), arrived)

    def life_of(self, app: str, now: int) -> int:
        """ms since it came."""
        return now - self.arrived[app][0]

    def mean_since(self, app: str, now: int) -> float:
        """Mean number of active apps since this one arrived, itself included."""
        start, area = self.arrived[app]
        return (self._area_at(now) - area) / (now - start) if now > start else float(self.apps)

    def _area_at(self, now: int) -> int:
        return self.area + self.apps * (now - self.counted_ms)


def app_of(record: JobRecord) -> str:
    """Jobs of one program of one user; a job without a program is an app of its own."""
    job = record.job
    return f"{job.queue}/{job.user}/{job.app}" if job.app else job.id


class AppIndex:
    """Live jobs by app; a cache that follows the changes of the view."""

    def __init__(self) -> None:
        self.jobs: dict[str, dict[int, JobRecord]] = {}
        self.waiting: dict[int, JobRecord] = {}
        self.holding: dict[int, JobRecord] = {}
        self.elastic: set[int] = set()
        self.has_changed = True
        """Whether apps have arrived or ended since the flag was last cleared."""
        self.news: list[JobRecord] = []
        """Jobs that have changed since the list was last read."""

    def follow(self, changed: Iterable[JobRecord]) -> None:
        for record in changed:
            self.news.append(record)
            app = app_of(record)
            self.waiting.pop(record.seq, None)
            self.holding.pop(record.seq, None)
            if record.phase in HIDDEN_PHASES:
                self._forget(app, record)
                continue
            if app not in self.jobs:
                self.jobs[app] = {}
                self.has_changed = True
            self.jobs[app][record.seq] = record
            if record.phase in WAITING:
                self.waiting[record.seq] = record
            elif record.placement is not None:
                self.holding[record.seq] = record
            if record.demand.is_elastic:
                self.elastic.add(record.seq)

    def _forget(self, app: str, record: JobRecord) -> None:
        mine = self.jobs.get(app, {})
        mine.pop(record.seq, None)
        self.elastic.discard(record.seq)
        if not mine and self.jobs.pop(app, None) is not None:
            self.has_changed = True

    def bidders(
        self,
        pool: Iterable[JobRecord],
        count: ActiveAppsIntegral,
        starves: Callable[[JobRecord], bool],
        now: int,
        is_served: Callable[[JobRecord], bool],
    ) -> list[BiddingApp]:
        """Apps that could use offered GPUs: those whose leases have expired, then those with waiting jobs."""
        found: dict[str, BiddingApp] = {}
        waiting = [record for record in self.in_line() if not is_served(record)]
        for record in (*sorted(pool, key=lambda run: run.seq), *waiting):
            name = app_of(record)
            app = found.get(name)
            if app is None:
                life, apps = count.life_of(name, now), count.mean_since(name, now)
                app = found[name] = BiddingApp(name, self.jobs[name], life, apps, now)
            app.candidates.append(record)
            app.is_starving |= starves(record)
        return list(found.values())

    def in_line(self) -> list[JobRecord]:
        return [self.waiting[seq] for seq in sorted(self.waiting)]


def work_of(record: JobRecord, now: int) -> tuple[int, int]:
    """(left, total): by its estimate; without one, as much again as it has done.

    A job that has exceeded its estimate is assumed to need a tenth more each time. Every job is assumed to
    take at least 1 ms in total, so that ratios are defined.
    """
    done = record.work_at(now)
    if record.estimate is None:
        return max(done, AT_LEAST), done + max(done, AT_LEAST)
    left = record.estimate.work - done
    return left if left > 0 else max(done // 10, AT_LEAST), max(record.estimate.work, NOMINAL)


def _is_bid_for(jobs: int) -> bool:
    """Whether an app bids for this number of its jobs: up to 16, then powers of two, to keep bids small."""
    return jobs <= FEW_JOBS or jobs.bit_count() == 1


def present_size(record: JobRecord) -> int:
    """The number of GPUs it has, or the fewest it can start with."""
    return sizes_of(record)[0] if record.placement is None else len(record.placement.slices)


def sizes_of(record: JobRecord) -> list[int]:
    """Gang-feasible numbers of GPUs worth bidding for: the bounds, the nominal, doublings between."""
    demand = record.demand
    if not demand.is_elastic:
        return [demand.nominal.count]
    found = {demand.min_count, demand.nominal.count, demand.max_count}
    if record.placement is not None:
        found.add(len(record.placement.slices))
    size = demand.min_count
    while size < demand.max_count:
        found.add(size)
        size *= 2
    return sorted(found)


@dataclass(slots=True)
class BiddingApp:
    """An app with jobs that could use GPUs of the offer."""

    name: str
    jobs: Mapping[int, JobRecord]
    elapsed: int
    mean_apps: float
    """Mean number of apps over its life."""
    now: int
    candidates: list[JobRecord] = field(default_factory=list)
    """Its jobs in the auction: running ones first, then by submission."""
    is_starving: bool = False
    grants: list[tuple[int, float, Grant]] = field(default_factory=list)
    """(GPUs, rho, GPUs of each job), growing in GPUs and falling in rho."""
    rho_if_served: float = 0.0
    """Where the offer holds nothing for it: rho if it had what its first job needs, somewhere."""

    def value(
        self, speed_of: SpeedOf, best_speed_of: SpeedOf, cluster_gpus: int, offered: int
    ) -> None:
        """Fill in what each bundle is worth that the offer could hold."""
        first = self.candidates[0]
        if len(self.jobs) == 1 and not first.demand.is_elastic:
            self._value_gang(first, speed_of, cluster_gpus)
            return
        bidding = {record.seq for record in self.candidates}
        left = total = held = best_speed = most = 0
        for seq, record in self.jobs.items():
            size, demand = record.demand.nominal.count, record.demand
            work_left, work = work_of(record, self.now)
            left += work_left * size
            total += work * size
            most += demand.max_count
            best_speed += (best_speed_of(record, demand.max_count) or NOMINAL) * size
            if record.since_ms is not None and seq not in bidding:
                held += record.speed_ppm * size
        # T_id: all of its work with the cluster for itself, times the mean number of mean_apps.
        alone = total / (best_speed * min(1.0, cluster_gpus / most)) * self.mean_apps
        for grant, gained in self._bundles(speed_of, offered):
            late = rho(self.elapsed, left, held + gained, alone)
            if not self.grants or late < self.grants[-1][1]:
                self.grants.append((sum(count for _, count in grant), late, grant))
        if not self.grants:
            gained = first.demand.nominal.count * NOMINAL
            self.rho_if_served = rho(self.elapsed, left, held + gained, alone)

    def _value_gang(self, record: JobRecord, speed_of: SpeedOf, cluster_gpus: int) -> None:
        """The same for the usual app, one rigid job."""
        count = record.demand.nominal.count
        speed = speed_of(record, count)
        left, total = work_of(record, self.now)
        alone = total / (NOMINAL * min(1.0, cluster_gpus / count)) * self.mean_apps
        if speed is None:
            self.rho_if_served = rho(self.elapsed, left, NOMINAL, alone)
        else:
            self.grants.append((count, rho(self.elapsed, left, speed, alone), ((record, count),)))

    def _bundles(self, speed_of: SpeedOf, offered: int) -> Iterator[tuple[Grant, int]]:
        """Bundles within the offer, growing, and the speed that the app gains by each.

        One job may have any of its sizes; of several, the first ones get the least they can use, and
        at last those that run as many as they have.
        """
        if len(self.candidates) == 1:
            (record,) = self.candidates
            for count in sizes_of(record):
                speed = speed_of(record, count)
                if speed is not None:
                    yield ((record, count),), speed * record.demand.nominal.count
            return
        grant: list[tuple[JobRecord, int]] = []
        used = gained = 0
        for record in self.candidates:
            count = sizes_of(record)[0]
            speed = speed_of(record, count) if used + count <= offered else None
            if speed is None:
                continue
            grant.append((record, count))
            used += count
            gained += speed * record.demand.nominal.count
            if _is_bid_for(len(grant)):
                yield tuple(grant), gained
        if grant and not _is_bid_for(len(grant)):
            yield tuple(grant), gained
        as_they_are = tuple((record, present_size(record)) for record, _ in grant)
        more = sum(count for _, count in as_they_are) - used
        if 0 < more <= offered - used:
            speeds = [(speed_of(*pair) or 0, pair[0].demand.nominal.count) for pair in as_they_are]
            yield as_they_are, sum(speed * size for speed, size in speeds)

    @property
    def rho(self) -> float:
        """With the best bundle of the offer."""
        return self.grants[-1][1] if self.grants else self.rho_if_served

    @property
    def has_nothing(self) -> bool:
        return all(record.placement is None for record in self.jobs.values())

    def order(self) -> tuple[bool, float, int, str]:
        """The order of asking: the starving, then the largest rho, the longest wait, the name."""
        waits = min([record.waiting_since_ms for record in self.candidates])
        return (not self.is_starving, -self.rho, waits, self.name)
