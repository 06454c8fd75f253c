"""The queues file: names, parents, weights and bounds, checked as a whole."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from pydantic import Field, model_validator

from trainmaster.config.quotas import BudgetEntry, GpusPerUser, JobsPerUser, NamedUserLimits
from trainmaster.config.validation import (
    FileModel,
    Label,
    Lines,
    amount,
    checked,
    mistake,
)
from trainmaster.model.queue import Queue
from trainmaster.model.quota import UserLimits
from trainmaster.model.units import WHOLE
from trainmaster.text.suggest import did_you_mean

Gpus = Annotated[int, amount(WHOLE)]


class QueueEntry(FileModel):
    name: Label
    parent: Label | None = None
    weight: Annotated[int, Field(ge=1)] = 1
    guaranteed: Gpus = Field(default=0, alias="guaranteed_gpus")
    maximum: Gpus | None = Field(default=None, alias="maximum_gpus")
    allow_unpreemptible: bool = True
    max_gpus_per_user: GpusPerUser | None = None
    max_running_per_user: JobsPerUser | None = None
    max_jobs_per_user: JobsPerUser | None = None
    budget: BudgetEntry | None = None

    @property
    def queue(self) -> Queue:
        budget = None if self.budget is None else self.budget.budget
        return Queue(**dict(self) | {"budget": budget})

    @model_validator(mode="after")
    def _check_bounds(self) -> QueueEntry:
        if self.maximum is not None and self.guaranteed > self.maximum:
            raise mistake(
                f"queue {self.name!r}: guaranteed_gpus, {self.guaranteed / WHOLE:g}, is more than"
                f" maximum_gpus, {self.maximum / WHOLE:g}",
                "maximum_gpus",
            )
        return self


class QueuesFile(FileModel):
    queues: list[QueueEntry] = []
    users: list[NamedUserLimits] = []
    """What users may have at most, in all queues together."""

    @model_validator(mode="after")
    def _check_content(self) -> QueuesFile:
        if not self.queues and not self.users:
            raise mistake("it must list queues, or users with limits", "queues")
        names = [each.name for each in self.users]
        for at, name in enumerate(names):
            if name in names[:at]:
                raise mistake(f"{{}} is a second user {name!r}", "users", at)
        return self

    @model_validator(mode="after")
    def _check_tree(self) -> QueuesFile:
        queues: dict[str, Queue] = {}
        for at, queue in enumerate(self.queues):
            if queue.name in queues:
                raise mistake(f"{{}} is a second queue {queue.name!r}", "queues", at)
            queues[queue.name] = queue.queue
        for at, name in enumerate(queues):
            _check_ancestors(name, queues, at)
        for at, name in enumerate(queues):
            inside, maximum = _guaranteed_inside(name, queues), queues[name].maximum
            if maximum is not None and inside > maximum:
                raise mistake(
                    f"queue {name!r} guarantees {inside / WHOLE:g} GPUs to queues inside it,"
                    f" its maximum_gpus is {maximum / WHOLE:g}",
                    *("queues", at, "maximum_gpus"),
                )
        return self


def queues_from(
    raw: object, where: str = "the queues file", lines: Lines | None = None
) -> dict[str, Queue]:
    """The described queues by name, or a ConfigError."""
    found = checked(QueuesFile, raw, where, lines)
    return {each.name: each.queue for each in found.queues}


def user_limits_from(
    raw: object, where: str = "the queues file", lines: Lines | None = None
) -> tuple[UserLimits, ...]:
    """The limits of users that the same file states."""
    found = checked(QueuesFile, raw, where, lines)
    return tuple(each.limits(each.name) for each in found.users)


def guaranteed_in(name: str, queues: Mapping[str, Queue]) -> int:
    """What a queue is guaranteed: at least what the queues inside it are, together."""
    return max(queues[name].guaranteed, _guaranteed_inside(name, queues))


def _guaranteed_inside(name: str, queues: Mapping[str, Queue]) -> int:
    inside = [each.name for each in queues.values() if each.parent == name]
    return sum(guaranteed_in(each, queues) for each in inside)


def _check_ancestors(name: str, queues: Mapping[str, Queue], at: int) -> None:
    seen = [name]
    parent = queues[name].parent
    while parent is not None:
        place = ("queues", at, "parent")
        if parent not in queues:
            near = did_you_mean(parent, queues)
            raise mistake(f"queue {name!r}: its parent {parent!r} is not a queue; {near}", *place)
        if parent in seen:
            loop = " > ".join([*seen[seen.index(parent) :], parent])
            raise mistake(f"queues lie inside each other in a circle: {loop}", *place)
        seen.append(parent)
        parent = queues[parent].parent
