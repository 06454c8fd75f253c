"""What a policy returns: actions, its memo, and when to be asked again."""

from __future__ import annotations

from collections.abc import ItemsView, Iterator, Mapping, ValuesView
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, overload

from typing_extensions import TypeVar

from trainmaster.model.actions import Action
from trainmaster.model.deadline_notices import DeadlineNotice

K = TypeVar("K")
V = TypeVar("V")
T = TypeVar("T")
M = TypeVar("M", default=Any)
"""What a policy remembers from pass to pass: a frozen value that stores can keep."""


class FrozenMap(Mapping[K, V], Generic[K, V]):
    """An immutable mapping for memos: updates give a new one, equality is by content."""

    __slots__ = ("_items",)

    def __init__(self, items: Mapping[K, V] | None = None) -> None:
        self._items: dict[K, V] = dict(items or {})

    def __getitem__(self, key: K) -> V:
        return self._items[key]

    def __contains__(self, key: object) -> bool:
        return key in self._items

    @overload
    def get(self, key: K, /) -> V | None: ...

    @overload
    def get(self, key: K, /, default: V | T) -> V | T: ...

    def get(self, key: K, /, default: V | T | None = None) -> V | T | None:
        """Without the exception that a missing key costs in a plain `Mapping`."""
        return self._items.get(key, default)

    def __iter__(self) -> Iterator[K]:
        return iter(self._items)

    def __len__(self) -> int:
        return len(self._items)

    def items(self) -> ItemsView[K, V]:
        """The dict's own, which does not look up every key again."""
        return self._items.items()

    def values(self) -> ValuesView[V]:
        return self._items.values()

    def __hash__(self) -> int:
        return hash(frozenset(self._items.items()))

    def __repr__(self) -> str:
        return f"FrozenMap({self._items!r})"

    def updated(self, changes: Mapping[K, V]) -> FrozenMap[K, V]:
        return FrozenMap({**self._items, **changes})

    def only(self, keys: Mapping[K, object]) -> FrozenMap[K, V]:
        """Without the entries whose key is not among `keys`."""
        return FrozenMap({key: value for key, value in self._items.items() if key in keys})


class Rank(NamedTuple):
    """A job's priority as a linear function of time: (level, value + rate x now), lower first.

    It holds until `until_ms`; then the policy is asked again. Ties: earlier submission, then the
    order of submission.
    """

    level: int
    value: int
    rate: int = 0
    until_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Plan(Generic[M]):
    """The actions in order, the policy's memo, and the latest time to ask it again."""

    actions: tuple[Action, ...]
    memo: M = None  # type: ignore[assignment]  # of a plan that is not a policy's answer
    wake_at: int | None = None
    notices: tuple[DeadlineNotice, ...] = ()
    """What the owners of jobs should know of their deadlines."""
