"""Orders on their way to a supervisor, kept until an entry of its journal answers them."""

from __future__ import annotations

from dataclasses import dataclass

from trainmaster.engines.local.journal import LAST, JournalEntry
from trainmaster_sdk.wire import Message

ENDS = ("halt", "kill")
ANSWERS = {
    "freeze": ("frozen", "not frozen"),
    "thaw": ("thawed",),
    "reshape": ("reshaped",),
    "regroup": ("reshaped", "not resized"),
}
"""What a supervisor writes when it has carried out an order; the end of the run answers every order."""
INSTEAD_OF = {
    "freeze": ("freeze", "thaw"),
    "thaw": ("freeze", "thaw"),
    "reshape": ("reshape",),
    "regroup": ("regroup",),
}
"""Earlier orders that must not be sent again after a new one."""


@dataclass(slots=True)
class PendingOrder:
    """One order."""

    said: Message
    since: int | None = None
    """The run's last entry when it was handed over; None: it has not been sent yet."""
    is_due: bool = True
    """Whether it still has to be sent on the present connection."""

    def is_answered_by(self, entry: JournalEntry) -> bool:
        if entry["what"] in LAST:
            return True
        if self.since is None or entry["n"] <= self.since:
            return False  # it is about an order before this one
        if entry["what"] not in ANSWERS.get(self.said["order"], ()):
            return False
        return self.said["order"] != "reshape" or _generation(entry) >= _generation(self.said)


class PendingOrders:
    """All that wait, oldest first."""

    def __init__(self) -> None:
        self._pending: list[PendingOrder] = []

    def __bool__(self) -> bool:
        """Whether one waits that must be answered; an order to save need not be."""
        return any(each.said["order"] != "save" for each in self._pending)

    @property
    def ends(self) -> list[Message]:
        """Those of them that end the run."""
        return [each.said for each in self._pending if each.said["order"] in ENDS]

    def add(self, said: Message) -> None:
        old = INSTEAD_OF.get(said["order"], ())
        self._pending = [
            each for each in self._pending if each.since is None or each.said["order"] not in old
        ]
        self._pending.append(PendingOrder(said))

    def drop_unsent(self) -> None:
        self._pending = [each for each in self._pending if each.since is not None]

    def mark_all_due(self) -> None:
        """There is a new connection: what was sent on the last one may be lost."""
        for each in self._pending:
            each.is_due = True

    def take_due(self, after: int) -> list[Message]:
        """Orders to send now, to a supervisor whose last entry was this."""
        due = [each for each in self._pending if each.is_due]
        for each in due:
            each.is_due = False
            each.since = after if each.since is None else each.since
        self._pending = [each for each in self._pending if each.said["order"] != "save"]
        return [each.said for each in due]

    def drop_answered(self, entry: JournalEntry) -> None:
        self._pending = [each for each in self._pending if not each.is_answered_by(entry)]


def _generation(said: Message) -> int:
    generation = said.get("generation")
    return generation if isinstance(generation, int) else 0
