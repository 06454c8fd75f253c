"""Takes back launchers and reservations of the stores that are named on its standard input, a line each.

    python -m tests.ray.withdrawer ADDRESS

One process for many: connecting takes seconds.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import ray
from ray._raylet import PlacementGroupID
from ray.util import list_named_actors
from ray.util.placement_group import (
    PlacementGroup,
    placement_group_table,
    remove_placement_group,
)

from tests.ray.cluster import ROOT


@contextmanager
def withdrawing(address: str) -> Iterator[Callable[[str], None]]:
    """Takes back what a store has."""
    words = [sys.executable, "-m", "tests.ray.withdrawer", address]
    with subprocess.Popen(
        words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        line, answers = process.stdin, process.stdout

        def withdraw(store: str) -> None:
            line.write(f"{store}\n")
            line.flush()
            assert answers.readline().strip() == store

        yield withdraw


def main(address: str) -> None:
    ray.init(address=address, log_to_driver=False, logging_level="error")
    for line in sys.stdin:
        store = line.strip()
        for each in list_named_actors(all_namespaces=True):
            if each["namespace"] == f"trainmaster-{store}":
                ray.kill(ray.get_actor(**each))
        for id_, row in placement_group_table().items():
            if row["name"].startswith(f"tm:{store}:") and row["state"] != "REMOVED":
                remove_placement_group(PlacementGroup(PlacementGroupID(bytes.fromhex(id_))))
        print(store, flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
