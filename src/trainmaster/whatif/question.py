"""What is asked: which time, under which policies, on which cluster, with which queues."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from trainmaster.model.units import DAY

MOST_POLICIES = 4
MOST_MORE_NODES = 10_000


class QuestionError(ValueError):
    """A question that cannot be answered: one sentence."""


@dataclass(frozen=True, slots=True)
class PolicyAsked:
    name: str
    options: tuple[tuple[str, str], ...] = ()

    @property
    def words(self) -> str:
        said = ", ".join(f"{key}={value}" for key, value in self.options)
        return f"{self.name} ({said})" if said else self.name


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

    def to_json(self) -> str:
        return json.dumps(
            {
                "policies": [[each.name, list(each.options)] for each in self.policies],
                "queue_now": self.queue_now,
                "since_ms": self.since_ms,
                "more_nodes": self.more_nodes,
                "cluster": self.cluster,
                "queues": self.queues,
                "set_queues": self.set_queues,
            }
        )

    @classmethod
    def from_json(cls, text: str) -> Question:
        said = json.loads(text)
        policies = tuple(
            PolicyAsked(name, tuple((key, value) for key, value in options))
            for name, options in said.pop("policies")
        )
        return cls(policies, **said)


def _plain(value: object) -> str:
    return f"{value:g}" if isinstance(value, int | float) else str(value)
