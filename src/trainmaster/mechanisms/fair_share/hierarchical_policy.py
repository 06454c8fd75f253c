"""The base of policies that divide GPUs between queues, with an inner policy for each queue.

`inner` is any policy that does not divide between queues itself; each queue has one of its own, with
its own memory. `inner_options` are passed on to it, and so are `starve_after_s` and `min_run_s`, which
apply inside queues and between them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar, Self, TypeVar

from trainmaster.catalog import CatalogError, policy_class
from trainmaster.config.options import (
    FromFile,
    Pairs,
    allows,
    divides_queues,
    is_from_file,
    option,
    queue_weights,
    read_options,
    settings,
    shown,
)
from trainmaster.core.queue_views import QueueView, queue_views_of
from trainmaster.core.state import JobRecord
from trainmaster.core.view import View
from trainmaster.mechanisms.base_policy import BasePolicy, M
from trainmaster.mechanisms.fair_share.queue_pass import Inner, QueuePass, QueuePassMemo, sooner
from trainmaster.mechanisms.fair_share.queue_tree import TreeCache
from trainmaster.mechanisms.preemption_guards import PreemptiveOptions
from trainmaster.model.reasons import Reason, Why
from trainmaster.model.topology import CPU_TYPE
from trainmaster.model.units import WHOLE
from trainmaster.placement.placers import Placer

PASSED_ON = ("starve_after_s", "min_run_s")


@allows("a policy without queues")
def inner_policy(text: str) -> str:
    """The name of a policy that can plan for the jobs of one queue."""
    try:
        kind = policy_class(text)
    except CatalogError as error:
        raise ValueError(f"a policy ({str(error).rstrip('.')})") from None
    if not issubclass(kind, BasePolicy) or divides_queues(kind):
        raise ValueError("a policy that does not divide between queues itself")
    return text


@dataclass(frozen=True, slots=True)
class QueueWeightOptions(PreemptiveOptions):
    queues: Pairs[int] = option(
        Pairs(), queue_weights, "name:weight,...; overrides the weights in --queues"
    )


@dataclass(frozen=True, slots=True)
class QueueOptions(QueueWeightOptions):
    inner: str = option("fifo", inner_policy, "the policy inside each queue")
    inner_options: Pairs[str | FromFile[str]] = option(
        Pairs((), "=", ";"), settings, "options of the inner policy, key=value;..."
    )

    def with_files(self, read_file: Callable[[str], str]) -> Self:
        """The same with the content of the files that inner options name."""
        kind = policy_class(self.inner).options_type
        items = tuple(
            (key, FromFile(str(value), read_file(str(value))))
            if value and is_from_file(kind, key)
            else (key, value)
            for key, value in self.inner_options.items
        )
        return replace(self, inner_options=replace(self.inner_options, items=items))


Q = TypeVar("Q", bound=QueueWeightOptions)


class HierarchicalPolicy(BasePolicy[Q, M]):
    """A policy that divides GPUs between queues and leaves the rest to an inner policy."""

    obeys_queues = True
    inner_defaults: ClassVar[Mapping[str, Mapping[str, str]]] = {}
    """By inner policy: options that it gets here unless it is told otherwise."""

    def __init__(self, options: Q) -> None:
        super().__init__(options)
        kind, self._inner_options = self.chosen_inner(options)
        self._inner_kind = kind
        self._overrules = self.guards.are_on and not self.takes_guards(kind)
        self._any_inner: Inner = kind(self._inner_options)
        self._inners: dict[str, Inner] = {}
        self._trees = TreeCache(dict(options.queues.items))
        inner = self._any_inner
        self.needs_oracle = inner.needs_oracle
        self.profiles = self.profiles or inner.profiles
        self.is_moldable = inner.is_moldable
        self.splits = inner.splits
        self.progress_every_ms = inner.progress_every_ms

    def takes_guards(self, kind: Any) -> bool:
        """Whether the inner policy can be told of `starve_after_s` and `min_run_s`."""
        return {each.name for each in fields(kind.options_type)}.issuperset(PASSED_ON)

    def chosen_inner(self, options: Q) -> tuple[Any, object]:
        """The class of the inner policy, and its options; a policy with one of its own overrides this."""
        assert isinstance(options, QueueOptions)
        kind = policy_class(options.inner)
        passed = dict(options.inner_options.items)
        files = {each.name: each.value for each in passed.values() if isinstance(each, FromFile)}
        given = dict(self.inner_defaults.get(options.inner, {}))
        given |= {key: str(shown(value)) for key, value in passed.items()}
        known = {each.name for each in fields(kind.options_type)}
        for key in PASSED_ON:
            if key in known:
                given.setdefault(key, str(getattr(options, key)))
        read_file = files.__getitem__ if files else None
        return kind, read_options(options.inner, kind.options_type, given, read_file)

    def placer(self, record: JobRecord) -> Placer:
        return self._any_inner.placer(record)

    def forget(self) -> None:
        super().forget()
        self._trees.clear()
        for inner in (*self._inners.values(), self._any_inner):
            inner.forget()

    def inner_of(self, queue: str) -> Inner:
        found = self._inners.get(queue)
        if found is None:
            found = self._inners[queue] = self._inner_kind(self._inner_options)
        return found

    # -- a pass ----------------------------------------------------------------------------------

    def begin(self, view: View, memo: QueuePassMemo, now: int, *also: str) -> QueuePass:
        """A round with what each queue holds and wants; `also`: queues to know of besides."""
        parts = queue_views_of(view)
        tree = self._trees.tree(view.queues, (*parts, *also))
        tree.count(parts)
        self._overrule(parts)
        return QueuePass(view, parts, tree, self.inner_of, memo, self.guards, now)

    def _overrule(self, parts: Mapping[str, QueueView]) -> None:
        """Let the guards hold inside queues whose policy cannot be told of them."""
        if self._overrules:
            for part in parts.values():
                part.overrule = self.guards.rank

    def wake_of(self, view: View, memo: QueuePassMemo, now: int) -> int | None:
        """After runs have started: when their queues' inner policies want to be asked."""
        if view.has_nothing_to_schedule():
            return None
        parts, times = queue_views_of(view), list[int | None]()
        self._overrule(parts)
        for queue in view.dirty_queues & parts.keys():
            part, inner = parts[queue], self.inner_of(queue)
            known = memo.inner[queue] if queue in memo.inner else inner.first_memo()
            times.append(sooner(inner, part, known, inner.wake(part, known, now), now))
        least_run = self.guards.least_run_ms(view.switch_ms)
        if least_run:
            times.append(now + least_run)
        return min((at for at in times if at is not None), default=None)

    # -- why a job waits -------------------------------------------------------------------------

    def explain_in(self, view: View, memo: QueuePassMemo, record: JobRecord, now: int) -> Reason:
        """Its queue's share is used up, or what every policy says."""
        reason = self.placement_reason(view, record, now)
        if record.placement is not None:
            return reason
        return share_reason(self.begin(view, memo, now), record, reason, capacity(view))


def share_reason(round_: QueuePass, record: JobRecord, reason: Reason, total: int) -> Reason:
    """That its queue's share is used up or can never hold it, or else the reason given."""
    round_.tree.divide_budgets(total)
    leaf, need = round_.tree.leaves[record.job.queue], reason.need
    too_small = leaf.too_small_for(need)
    if too_small is not None:
        standing = too_small.standing()
        return Reason(Why.NEVER_FITS, need, reason.free, reason.largest_block, queue=standing)
    full = leaf.full_for(need)
    is_spent = leaf.used > 0 and leaf.used + need > leaf.budget and len(round_.parts) > 1
    if is_spent or full:
        standing = (full or [leaf])[0].standing()
        held_by = tuple(each.id for each in round_.parts[leaf.name].running()[:5])
        return Reason(
            *(Why.SHARE_USED_UP, need, reason.free, reason.largest_block, held_by),
            queue=standing if full else replace(standing, maximum=None),
        )
    if leaf.minimum and leaf.used + need <= leaf.minimum:  # it is owed what it waits for
        return replace(reason, queue=leaf.standing())
    return reason


def capacity(view: View) -> int:
    """Thousandths of a GPU that there are to divide: GPUs that can be used."""
    gpus, nodes, space = view.topology.training_gpus, view.topology.nodes, view.occupancy
    if space.closed:
        gpus -= sum(nodes[node].gpus for node in space.closed if nodes[node].type.name != CPU_TYPE)
    aside = [space.node_of[gpu] for gpu in space.aside if space.node_of[gpu] not in space.closed]
    gpus -= sum(nodes[node].type.name != CPU_TYPE for node in aside)
    return gpus * WHOLE
