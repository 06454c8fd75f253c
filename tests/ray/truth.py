"""Answers each line on its standard input with what a Ray cluster says of its nodes and placement groups, as
a line of JSON.

    python -m tests.ray.truth ADDRESS

Apart from the process that asks, because Ray's client ends its process when the head is away for long.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from ray._private.state import GlobalState
from ray._raylet import GcsClientOptions


def rows(state: GlobalState) -> list[dict[str, Any]]:
    free = state.available_resources_per_node()
    return [
        {
            "id": node["NodeID"],
            "name": node["NodeName"],
            "host": node["NodeManagerAddress"],
            "alive": node["Alive"],
            "labels": node["Labels"],
            "gpus": (gpus := node["Resources"].get("GPU", 0.0)),
            "left": free.get(node["NodeID"], {}),
            "taken": gpus - free.get(node["NodeID"], {}).get("GPU", 0.0),
        }
        for node in state.node_table()
    ]


def groups(state: GlobalState) -> list[dict[str, Any]]:
    """What is reserved: GPUs of each placement group by the id of the node, where Ray holds them."""
    found = []
    for row in state.placement_group_table().values():
        held: dict[str, float] = {}
        for index, node in row["bundles_to_node_id"].items():
            if node:
                held[node] = held.get(node, 0.0) + row["bundles"][index].get("GPU", 0.0)
        found.append({"name": row["name"], "state": row["state"], "held": held})
    return found


def main(address: str) -> None:
    state = GlobalState()
    options = GcsClientOptions.create(
        address, None, allow_cluster_id_nil=True, fetch_cluster_id_if_nil=False
    )
    state._initialize_global_state(
        options
    )  # what `ray list` does too: Ray has no public word for it
    for _ in sys.stdin:
        print(json.dumps({"nodes": rows(state), "groups": groups(state)}), flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
