"""Queues from a user's description: names, parents, weights and bounds, checked as a whole."""

from __future__ import annotations

from collections.abc import Mapping

from trainmaster.config.fields import Fields
from trainmaster.model.queue import Queue
from trainmaster.model.units import WHOLE
from trainmaster.text.suggest import did_you_mean

QUEUE_KEYS = ("name", "parent", "weight", "guaranteed_gpus", "maximum_gpus")


class QueueError(ValueError):
    """A description of queues that cannot be: one sentence."""


def queues_from(
    description: Mapping[str, object], where: str = "the queues file"
) -> dict[str, Queue]:
    """The described queues by name, or a QueueError that names the key."""
    top = Fields(description, where, QueueError, ("queues",))
    top.require("queues")
    found: dict[str, Queue] = {}
    for fields in top.sections("queues", QUEUE_KEYS):
        queue = _queue(fields)
        if queue.name in found:
            raise QueueError(f"{fields.where} is a second queue {queue.name!r}.")
        found[queue.name] = queue
    if not found:
        raise QueueError(f"{where} defines no queues.")
    for queue in found.values():
        _check_ancestors(queue, found, where)
    for queue in found.values():
        _check_maximum(queue, found, where)
    return found


def guaranteed_in(name: str, queues: Mapping[str, Queue]) -> int:
    """What a queue is guaranteed: at least what the queues inside it are, together."""
    return max(queues[name].guaranteed, _guaranteed_inside(name, queues))


def _guaranteed_inside(name: str, queues: Mapping[str, Queue]) -> int:
    inside = [each.name for each in queues.values() if each.parent == name]
    return sum(guaranteed_in(each, queues) for each in inside)


def _check_maximum(queue: Queue, queues: Mapping[str, Queue], where: str) -> None:
    inside = _guaranteed_inside(queue.name, queues)
    if queue.maximum is not None and inside > queue.maximum:
        raise QueueError(
            f"{where}: queue {queue.name!r} guarantees {inside / WHOLE:g} GPUs to queues inside it,"
            f" its maximum_gpus is {queue.maximum / WHOLE:g}."
        )


def _queue(fields: Fields) -> Queue:
    fields.require("name")
    name = fields.text("name")
    assert name is not None
    guaranteed, maximum = _milli(fields, "guaranteed_gpus"), _milli(fields, "maximum_gpus")
    if guaranteed is not None and maximum is not None and guaranteed > maximum:
        raise QueueError(f"{fields.where} guarantees more than its maximum_gpus.")
    return Queue(
        name=name,
        parent=fields.text("parent") if fields.values.get("parent") is not None else None,
        weight=fields.whole("weight", least=1) or 1,
        guaranteed=guaranteed or 0,
        maximum=maximum,
    )


def _milli(fields: Fields, key: str) -> int | None:
    gpus = fields.number(key)
    return None if gpus is None else round(gpus * WHOLE)


def _check_ancestors(queue: Queue, queues: Mapping[str, Queue], where: str) -> None:
    seen = [queue.name]
    parent = queue.parent
    while parent is not None:
        if parent not in queues:
            raise QueueError(
                f"{where}: queue {seen[-1]!r} has the parent {parent!r}, which is no queue;"
                f" {did_you_mean(parent, queues)}"
            )
        if parent in seen:
            loop = " > ".join([*seen[seen.index(parent) :], parent])
            raise QueueError(f"{where}: queues lie inside each other in a circle: {loop}.")
        seen.append(parent)
        parent = queues[parent].parent
