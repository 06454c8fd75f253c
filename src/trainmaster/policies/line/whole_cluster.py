"""All jobs of the cluster in one line, with company on GPUs where a queue exists.

The line itself is that of one_line.py. Single-GPU jobs that find no GPU free may join another's
(policies/sharing/pairing.py). What that remembers is a value, for the memo.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, replace

from trainmaster.core.draft import Draft
from trainmaster.core.state import JobRecord
from trainmaster.core.view import View
from trainmaster.model.plan import Plan
from trainmaster.policies.line.knowing import Knowing
from trainmaster.policies.line.one_line import OneLine
from trainmaster.policies.sharing.crowds import NOBODY_PACKED, Packed, soonest
from trainmaster.policies.sharing.crowds import Terms as PackingTerms
from trainmaster.policies.sharing.pairing import Pairing


@dataclass(frozen=True, slots=True)
class LineMemo:
    """What is remembered of how runs were placed."""

    packed: Packed = NOBODY_PACKED


class WholeCluster(OneLine):
    """One line for all; without terms a mechanism is off."""

    def __init__(
        self, knowing: Knowing, *, reserves: bool, packing: PackingTerms | None = None
    ) -> None:
        super().__init__(knowing, reserves=reserves)
        self._pairing = None if packing is None else Pairing(packing)

    def first_memo(self) -> LineMemo:
        return LineMemo()

    def group(self, record: JobRecord) -> Hashable:
        group: Hashable = super().group(record)
        if self._pairing is not None:
            group = self._pairing.group(record, group)
        return group

    def plan(self, view: View, memo: object, now: int) -> Plan:
        assert isinstance(memo, LineMemo)
        if view.is_settled() and not memo.packed.crowds:
            return Plan((), memo)
        order = self.in_line(view, now, with_running=True)
        if view.is_stable(order, now) and not self._is_due(view, memo, now):
            return Plan((), memo, soonest(order.next_expiry(), self._due(view, memo, now)))
        draft = Draft(view)
        due: int | None = None
        if self._pairing is None:
            self.fill(view, draft, order, now, self.placer)
        else:

            def is_promised(record: JobRecord) -> bool:
                return self._knowing.is_promised(record)

            sharing = self._pairing.begin(view, draft, order, memo.packed, now, is_promised)
            self.fill(view, draft, order, now, sharing.placer_of(self.placer))
            packed, due = sharing.end(self.placer)
            if packed is not memo.packed:
                memo = replace(memo, packed=packed)
        return draft.plan(memo, soonest(order.next_expiry(), due))

    def _is_due(self, view: View, memo: LineMemo, now: int) -> bool:
        return self._pairing is not None and self._pairing.is_due(view, memo.packed, now)

    def _due(self, view: View, memo: LineMemo, now: int) -> int | None:
        return None if self._pairing is None else self._pairing.wake(view, memo.packed, now)

    def wake(self, view: View, memo: object, now: int) -> int | None:
        """A run that has just started comes to another rank at a time that is known now."""
        assert isinstance(memo, LineMemo)
        return soonest(super().wake(view, memo, now), self._due(view, memo, now))
