"""What is asked: which time, under which policies, on which cluster, with which queues."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from trainmaster.model.units import DAY
from trainmaster.text.formatting import length

MOST_POLICIES = 4
MOST_MORE_NODES = 10_000


class QuestionError(ValueError):
    """A question that cannot be answered: one sentence."""


@dataclass(frozen=True, slots=True)
class PolicyAsked:
    name: str
    options: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Question:
    """`queue_now`: the present queue from now on; else the time since `since_ms` before now."""

    policies: tuple[PolicyAsked, ...] = ()
    queue_now: bool = False
    since_ms: int = DAY
    """How far back, from now."""
    more_nodes: int = 0
    cluster: Mapping[str, Any] | None = None
    """A cluster file in place of the cluster; only of the past."""
    queues: Mapping[str, Any] | None = None
    """A queues file in place of the queues."""
    set_queues: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """By name: what is to be different of a queue, or a new one."""

    @property
    def changes_the_world(self) -> bool:
        return bool(self.more_nodes or self.cluster or self.queues or self.set_queues)

    @property
    def changes_words(self) -> str:
        """What is different from today beside the policy."""
        said = []
        if self.cluster is not None:
            said.append("another cluster")
        if self.more_nodes:
            said.append(f"{self.more_nodes} more node{'s' if self.more_nodes > 1 else ''}")
        if self.queues is not None:
            said.append("other queues")
        for name, terms in self.set_queues.items():
            shown = ", ".join(
                f"{key.removesuffix('_gpus')} {_plain(v)}" for key, v in terms.items()
            )
            said.append(f"{name}: {shown}")
        return "; ".join(said)

    @property
    def title(self) -> str:
        """For lists of what was asked."""
        past = "day" if self.since_ms == DAY else length(self.since_ms)
        what = "the present queue" if self.queue_now else f"the last {past}"
        policies = ", ".join(each.name for each in self.policies)
        under = f" under {policies}" if policies else ""
        with_ = f" with {self.changes_words}" if self.changes_words else ""
        return f"{what}{under}{with_}"

    def fields(self) -> dict[str, Any]:
        """As JSON has it."""
        return asdict(self)

    @classmethod
    def from_fields(cls, said: Mapping[str, Any]) -> Question:
        policies = tuple(
            PolicyAsked(each["name"], tuple((key, value) for key, value in each["options"]))
            for each in said["policies"]
        )
        return cls(**{**said, "policies": policies})


def _plain(value: object) -> str:
    return f"{value:g}" if isinstance(value, int | float) else str(value)
