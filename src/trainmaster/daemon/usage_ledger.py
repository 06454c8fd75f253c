"""Records the GPU time of jobs: a row for each stretch in which nothing changed that counts.

A stretch ends when a job leaves its GPUs or gets others, changes its queue, or a price changes. Its row is
stored with the step that ended it, and says the price of its time: a later price does not change the past.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from trainmaster.config.quotas import MICROS
from trainmaster.core.lifecycle import Phase
from trainmaster.core.state import JobRecord
from trainmaster.daemon.live_job import LiveJob
from trainmaster.model.quota import Prices
from trainmaster.model.topology import Topology
from trainmaster.model.units import ceil_div
from trainmaster.store.rows import ChargeRow


@dataclass(frozen=True, slots=True)
class Stretch:
    """What a job's GPU time counts for now."""

    user: str
    queue: str
    shares: tuple[tuple[str, int], ...]
    """Thousandths of a GPU by GPU type."""
    places: tuple[tuple[str, str], ...] = ()
    """By GPU type: the devices, as `ChargeRow.devices`."""
    attempt: int = 0

    @property
    def size(self) -> int:
        """How many devices it is on."""
        return sum(devices.count(",") + devices.count(":") for _, devices in self.places)


class UsageLedger:
    """The stretches of the jobs that run now."""

    def __init__(self, topology: Topology, prices: Prices) -> None:
        self.topology = topology
        self.prices = prices
        """Those of the stretches that have not ended."""
        self._open: dict[str, Stretch] = {}
        self._last: dict[str, Stretch] = {}
        """What counted of jobs that run no more, and may still be found to have run longer, or less long."""
        self.closed: Counter[tuple[str, str, str]] = Counter()
        """GPU time since the manager started, by queue, user and GPU type, without what is not ended."""

    def adopt(self, lives: Iterable[LiveJob]) -> None:
        """Go on with the jobs of a restarted manager."""
        for live in lives:
            if live.record is not None and live.record.since_ms is not None:
                self._open[live.id] = self._stretch(live, live.record)

    def settle(self, live: LiveJob, now: int) -> Iterator[ChargeRow]:
        """Rows of the stretch that has ended with this step, and the beginning of the next."""
        record = live.record
        if record is None:
            return
        before = self._open.pop(live.id, None)
        if before is not None:
            self._last[live.id] = before
        after = self._stretch(live, record) if record.since_ms is not None else None
        if before is not None and before != after:
            yield from self._close(
                live, record, before, now, _what_ended(live, record, before, after)
            )
        elif before is None and record.attained != live.history.charged_ms:
            # It ran within this step alone, left its GPUs at another time than it was ordered to, or began
            # in a store of an earlier version.
            last = self._last.get(live.id) or self._stretch(live, record)
            yield from self._close(live, record, last, now, _what_ended(live, record, last, after))
        if after is not None:
            if before != after:
                began = max(record.since_ms or 0, live.history.charged_at_ms)
                live.history = replace(live.history, charged_at_ms=began)
            self._open[live.id] = after
        elif not record.is_live:
            self._last.pop(live.id, None)

    def settle_at_new_prices(
        self, jobs: Mapping[str, LiveJob], prices: Prices, now: int
    ) -> Iterator[ChargeRow]:
        """Rows of all jobs that run, at the prices until now."""
        for job, stretch in self._open.items():
            record = jobs[job].record
            if record is not None:
                yield from self._close(jobs[job], record, stretch, now)
        self.prices = prices

    def open_rows(self, jobs: Mapping[str, LiveJob], now: int) -> Iterator[ChargeRow]:
        """Rows as they would be if every stretch ended now; nothing changes."""
        for job, stretch in self._open.items():
            live = jobs.get(job)
            if live is not None and live.record is not None:
                yield from self._rows(live, live.record, stretch, now)

    def _close(
        self,
        live: LiveJob,
        record: JobRecord,
        stretch: Stretch,
        now: int,
        ended: str | None = None,
    ) -> Iterator[ChargeRow]:
        rows = list(self._rows(live, record, stretch, now, ended))
        for row in rows:
            self.closed[row.queue, row.user, row.gpu_type] += max(0, row.gpu_ms)
        if rows:
            lost = live.history.lost_ms
            live.history = replace(
                live.history,
                charged_ms=record.attained_at(now),
                charged_at_ms=_counted_until(record, now),
                charged_lost_ms=lost,
            )
        yield from rows

    def _rows(
        self,
        live: LiveJob,
        record: JobRecord,
        stretch: Stretch,
        now: int,
        ended: str | None = None,
    ) -> Iterator[ChargeRow]:
        history, total = live.history, sum(share for _, share in stretch.shares)
        left = record.attained_at(now) - history.charged_ms
        if not left or not total:
            return
        lost = min((history.lost_ms - history.charged_lost_ms) * total, record.attained_at(now))
        end = _counted_until(record, now)
        began = max(history.charged_at_ms, live.job.submit_ms, end - ceil_div(left, total))
        places = dict(stretch.places)
        if left < 0:  # it had been charged for more: that is taken back
            began, end, places = end, history.charged_at_ms, {}
        for number, (kind, share) in enumerate(stretch.shares, 1):
            is_last = number == len(stretch.shares)
            part = left if is_last else left * share // total
            lost_part = lost if is_last else lost * share // total
            left, lost, total = left - part, lost - lost_part, total - share
            yield ChargeRow(
                job=live.id,
                user=stretch.user,
                queue=stretch.queue,
                gpu_type=kind,
                from_ms=min(began, end),
                to_ms=end,
                gpu_ms=part,
                lost_gpu_ms=max(0, lost_part),
                price=self._price(kind),
                currency=self.prices.currency,
                lost_to=history.lost_to if lost_part > 0 else "",
                attempt=stretch.attempt if kind in places else None,
                devices=places.get(kind),
                ended=ended if kind in places else None,
            )

    def lost_gpu_ms(self, jobs: Mapping[str, LiveJob], user: str | None = None) -> int:
        """GPU time of work that running jobs have lost and no row says yet."""
        found = 0
        for job, stretch in self._open.items():
            live = jobs.get(job)
            if live is not None and user in (None, stretch.user):
                lost_ms = live.history.lost_ms - live.history.charged_lost_ms
                found += max(0, lost_ms) * sum(share for _, share in stretch.shares)
        return found

    def open_spans(self, jobs: Mapping[str, LiveJob], now: int) -> Iterator[ChargeRow]:
        """Stretches that go on now, on devices."""
        return (row for row in self.open_rows(jobs, now) if row.devices is not None)

    def _stretch(self, live: LiveJob, record: JobRecord) -> Stretch:
        shares: Counter[str] = Counter()
        placement = record.placement or record.frozen
        places: dict[str, dict[int, list[int]]] = {}
        if placement is not None:
            types = self.topology.type_of_gpu
            total = placement.total_share
            for piece in placement.slices:
                kind = types[piece.gpu].name
                shares[kind] += total // len(placement.slices)
                places.setdefault(kind, {}).setdefault(piece.node, []).append(piece.gpu)
        if not shares:
            shares[live.job.demand.gpu_type or ""] = live.job.demand.nominal.total_share
        return Stretch(
            live.job.user,
            live.job.queue,
            tuple(sorted(shares.items())),
            tuple((kind, self._named(nodes)) for kind, nodes in sorted(places.items())),
            record.attempt,
        )

    def _named(self, gpus: Mapping[int, list[int]]) -> str:
        """Devices by node, as `ChargeRow.devices`."""
        nodes = (self.topology.nodes[node] for node in gpus)
        return "".join(
            f"\n{node.name}:{','.join(str(gpu - node.first_gpu) for gpu in gpus[node.index])}"
            for node in nodes
        )

    def _price(self, kind: str) -> int | None:
        """As set, or as the description of the cluster says."""
        for each in self.prices.by_type:
            if each.gpu_type == kind:
                return each.micros_per_hour
        stated = [t.price_per_hour for t in self.topology.types if t.name == kind]
        price = stated[0] if stated else None
        return None if price is None else round(price * MICROS)


def _what_ended(
    live: LiveJob, record: JobRecord, before: Stretch, after: Stretch | None
) -> str | None:
    """What ended a stretch of GPU time, as `ChargeRow.ended`."""
    if not record.is_live:
        return live.state.value
    if after is not None:
        if after.places == before.places:
            return None
        return "migrated" if after.size == before.size else "resized"
    if record.is_moving:
        return "migrated"
    if record.phase in ENDINGS and record.retry_at_ms is None:
        return ENDINGS[record.phase]
    return "lost" if record.losses else "failed" if record.failures else "pre-run"


ENDINGS: Mapping[Phase, str] = {
    Phase.SUSPENDING: "suspended",
    Phase.SUSPENDED: "suspended",
    Phase.HELD: "suspended",
    Phase.RESIZING: "resized",
    Phase.STOPPING: "stopped",
}


def _counted_until(record: JobRecord, now: int) -> int:
    """Until when its attained service counts."""
    return now if record.since_ms is not None else min(now, record.attained_ms or now)
