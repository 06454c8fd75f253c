"""Exact integer accounts of each job's work, GPU time, waiting and fairness."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import InitVar, dataclass

from trainmaster.core.state import JobRecord
from trainmaster.model.deadline_notices import DeadlineNotice
from trainmaster.model.placement import Placement, Sharing
from trainmaster.model.queue import Queue
from trainmaster.model.result import Stint
from trainmaster.model.trace import Outcome, TracedJob
from trainmaster.model.units import NOMINAL
from trainmaster.sim.cost import CostMeter, OverlapMeter


@dataclass(slots=True, eq=False)
class Account:
    """One job's account; times in ms, GPU time in thousandths of a GPU x ms."""

    traced: TracedJob
    has_failures: InitVar[bool]
    record: JobRecord | None = None
    needed: int = 0
    failed_attempts: tuple[int, ...] = ()
    outcome: Outcome = Outcome.SUCCEEDED
    profiling_ms: int = 0
    """Profiling time left before it can train."""
    attempt_index: int = 0
    credited: int = 0
    """Work done in all; at the end it is needed + lost."""
    lost: int = 0
    held: int = 0
    """GPU time held; at the end it is trained + charged."""
    trained: int = 0
    on_slots: int = 0
    """The part of it on CPU slots, for jobs that may use either."""
    trained_ms: int = 0
    attempt_trained: int = 0
    charged: int = 0
    wasted: int = 0
    holding: int = 0
    holding_since_ms: int = 0
    rate: int = 0
    """Price per hour of the GPUs it holds now."""
    spent: int = 0
    """Cost of the GPUs it held before."""
    start_ms: int | None = None
    finish_ms: int | None = None
    status: Outcome | None = None
    area_at_submit: int = 0
    area_at_end: int = 0

    def __post_init__(self, has_failures: bool) -> None:
        self.needed = self.traced.service_ms * NOMINAL
        if has_failures:
            self.failed_attempts = self.traced.failed_attempts_ms
            self.outcome = self.traced.outcome

    @property
    def has_failures_left(self) -> bool:
        return self.attempt_index < len(self.failed_attempts)

    @property
    def target(self) -> int:
        """Work at which the current attempt ends."""
        if self.has_failures_left:
            return self.failed_attempts[self.attempt_index] * NOMINAL
        return self.needed

    def work_left(self) -> int:
        """All work from the start of the current attempt to the job's end."""
        return self.needed + NOMINAL * sum(self.failed_attempts[self.attempt_index :])


class Ledger:
    """All accounts, and the sums over them."""

    def __init__(
        self,
        queues: Mapping[str, Queue],
        gpus_milli: int,
        *,
        keep_stints: bool,
        cost_meter: CostMeter | None = None,
    ) -> None:
        self.accounts: dict[str, Account] = {}
        self.cost_meter = cost_meter
        """None where GPUs have no price."""
        self.progressing = 0
        """Thousandths of a GPU making progress now."""
        self.overlap = OverlapMeter()
        """Of runs that make progress."""
        self.active = 0
        self.ended_count = 0
        self.stints: list[Stint] | None = [] if keep_stints else None
        self._placements: dict[str, Placement] = {}
        self._area = 0
        self._area_ms = 0
        self.fairness = Fairness(queues, gpus_milli)
        self.waiting: defaultdict[tuple[str, int], int] = defaultdict(int)
        """Jobs that hold nothing, by queue and demand number."""
        self.queued = 0
        """Their total."""
        self.using: defaultdict[str, int] = defaultdict(int)
        """Thousandths of a GPU held, by queue."""
        self.just_ended: list[Account] = []
        """Jobs that ended since somebody last looked for those that depend on them."""
        self.notices: defaultdict[str, list[tuple[int, DeadlineNotice]]] = defaultdict(list)
        """The policy's notices about each job's deadline, and when."""

    def submitted(self, account: Account, now: int) -> None:
        self._count(1, now)
        account.area_at_submit = self._area
        self.accounts[account.traced.job.id] = account
        self.fairness.joined(account.traced.job.queue, now)

    def _count(self, change: int, now: int) -> None:
        """Integrate the number of unfinished jobs, then change it."""
        self._area += self.active * (now - self._area_ms)
        self._area_ms = now
        self.active += change

    def waits(self, record: JobRecord, change: int) -> None:
        self.waiting[record.job.queue, record.group] += change
        self.queued += change

    def regroup(self, record: JobRecord, before: int) -> None:
        """A job that waits asks for something else than before."""
        if record.group != before:
            self.waiting[record.job.queue, before] -= 1
            self.waiting[record.job.queue, record.group] += 1

    def took(self, account: Account, share: int, placement: Placement, now: int) -> None:
        account.holding, account.holding_since_ms = share, now
        job = account.traced.job
        self.using[job.queue] += share
        if self.cost_meter is not None:
            account.rate = self.cost_meter.took(job.id, placement, now)
        if account.record is not None:
            self.waits(account.record, -1)
        if self.stints is not None:
            self._placements[job.id] = placement

    def left(self, account: Account, share: int, now: int) -> None:
        account.held += account.holding * (now - account.holding_since_ms)
        account.holding = 0
        job = account.traced.job
        if self.cost_meter is not None:
            account.spent += account.rate * (now - account.holding_since_ms)
            account.rate = 0
            self.cost_meter.left(job.id, now)
        self.using[job.queue] -= share
        if account.record is not None:
            self.waits(account.record, 1)
        if self.stints is not None and now > account.holding_since_ms:
            gpus = tuple(self._placements.pop(job.id).gpus())
            self.stints.append(Stint(job.id, gpus, account.holding_since_ms, now))

    def progress(self, placement: Placement, sign: int, now: int) -> None:
        """A run starts (1) or stops (-1) making progress on these GPUs; a shared GPU counts once."""
        if placement.sharing is Sharing.EXCLUSIVE:
            self.progressing += sign * placement.total_share
        else:
            self.progressing += self.overlap.count(placement, sign, now)

    def trained(self, account: Account, share: int, ms: int, work: int) -> None:
        account.trained += share * ms
        account.attempt_trained += share * ms
        account.trained_ms += ms
        account.credited += work

    def failed(self, account: Account, work: int) -> None:
        """An attempt failed."""
        account.lost += work
        account.wasted += account.attempt_trained
        account.attempt_trained = 0

    def fell_back(self, account: Account, work: int, share: int, speed_ppm: int) -> None:
        """Count the work after the last checkpoint as lost."""
        account.lost += work
        lost_time = share * work // speed_ppm if speed_ppm else 0
        lost_time = min(lost_time, account.attempt_trained)  # some of it was done at other speeds
        account.wasted += lost_time
        account.attempt_trained -= lost_time

    def ended(self, account: Account, outcome: Outcome, now: int) -> None:
        account.finish_ms = now
        account.status = outcome
        self.ended_count += 1
        self.just_ended.append(account)
        if outcome is Outcome.FAILED:
            account.wasted += account.attempt_trained
        self._count(-1, now)
        account.area_at_end = self._area
        if account.record is not None:
            self.waits(account.record, -1)
        self.fairness.left(account.traced.job.queue, now)

    def mean_active(self, account: Account) -> float:
        """Mean number of unfinished jobs over the life of an ended job."""
        assert account.finish_ms is not None
        life = account.finish_ms - account.traced.job.submit_ms
        return (account.area_at_end - account.area_at_submit) / life if life else 1.0


class Fairness:
    """Each queue's fair share while it had unfinished jobs: its part of the active tree."""

    def __init__(self, queues: Mapping[str, Queue], gpus_milli: int) -> None:
        self._queues = queues
        self._gpus_milli = gpus_milli
        self._jobs: Counter[str] = Counter()
        self._parts: dict[str, float] = {}
        """Fraction of the GPUs that each active queue is entitled to."""
        self._since_ms = 0
        self.entitled: defaultdict[str, float] = defaultdict(float)
        """GPU time by queue: thousandths of a GPU x ms."""

    def joined(self, queue: str, now: int) -> None:
        self._jobs[queue] += 1
        if self._jobs[queue] == 1:
            self._share_out(now)

    def left(self, queue: str, now: int) -> None:
        self._jobs[queue] -= 1
        if self._jobs[queue] == 0:
            self._share_out(now)

    def _share_out(self, now: int) -> None:
        """A queue became active or idle: count up to now, then divide again."""
        self.count_up_to(now)
        self._parts = self.parts([queue for queue, jobs in self._jobs.items() if jobs])

    def count_up_to(self, now: int) -> None:
        span = self._gpus_milli * (now - self._since_ms)
        for queue, part in self._parts.items():
            self.entitled[queue] += part * span
        self._since_ms = now

    def parts(self, active: Sequence[str]) -> dict[str, float]:
        """Divide by weight, level by level, among queues with active jobs below."""
        paths = {queue: self._path(queue) for queue in active}
        children: dict[str | None, dict[str, int]] = {}
        for path in paths.values():
            for parent, child in zip((None, *path), path, strict=False):
                children.setdefault(parent, {})[child] = self._weight(child)
        parts = {}
        for queue, path in paths.items():
            part = 1.0
            for parent, child in zip((None, *path), path, strict=False):
                part *= children[parent][child] / sum(children[parent].values())
            parts[queue] = part
        return parts

    def _path(self, queue: str) -> tuple[str, ...]:
        """From the outermost ancestor down to the queue itself."""
        path = [queue]
        known = self._queues.get(queue)
        while known is not None and known.parent is not None:
            path.append(known.parent)
            known = self._queues.get(known.parent)
        return tuple(reversed(path))

    def _weight(self, queue: str) -> int:
        return self._queues[queue].weight if queue in self._queues else 1


def jain(ratios: Sequence[float]) -> float | None:
    """Jain's index: 1 when all are equal, 1/n when one queue has everything."""
    squares = sum(ratio * ratio for ratio in ratios)
    if not squares:
        return None
    total = sum(ratios)
    return total * total / (len(ratios) * squares)
