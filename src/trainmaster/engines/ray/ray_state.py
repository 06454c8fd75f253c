"""What Ray's control store says of nodes and of what they have left: all that Ray has no public word for.

`ray.nodes()` ends its process when the store has been started again; these calls raise after their time.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import ray._private.worker
from ray.core.generated.gcs_pb2 import GcsNodeInfo

from trainmaster.engines.ray.node_facts import NodeFacts

ANSWER_S = 5.0


@dataclass(frozen=True, slots=True)
class NodeRow:
    facts: NodeFacts
    is_alive: bool
    since_ms: int
    """When its raylet was started."""
    why: str = ""
    """Of its death."""
    is_head: bool = False


@dataclass(frozen=True, slots=True)
class Free:
    """What a node has in all and has left, by the names of Ray's resources."""

    total: Mapping[str, float]
    left: Mapping[str, float]


def node_rows() -> list[NodeRow]:
    return [_row(each) for each in _client().get_all_node_info(timeout=ANSWER_S).values()]


def free_resources() -> dict[str, Free]:
    """By incarnation."""
    said = _client().get_all_resource_usage(timeout=ANSWER_S)
    return {
        each.node_id.hex(): Free(dict(each.resources_total), dict(each.resources_available))
        for each in said.resource_usage_data.batch
    }


def _row(info: GcsNodeInfo) -> NodeRow:
    total = info.resources_total
    is_named = info.node_name not in ("", info.node_manager_address)
    facts = NodeFacts(
        name=info.node_name if is_named else info.node_manager_hostname,
        incarnation=info.node_id.hex(),
        host=info.node_manager_address,
        gpus=total.get("GPU", 0.0),
        cpus=total.get("CPU", 0.0),
        memory=int(total.get("memory", 0.0)),
        labels=dict(info.labels),
    )
    is_alive = info.state == GcsNodeInfo.ALIVE
    why = " ".join(info.death_info.reason_message.split())
    return NodeRow(facts, is_alive, info.start_time_ms, why, info.is_head_node)


def _client() -> Any:
    return ray._private.worker.global_worker.gcs_client
