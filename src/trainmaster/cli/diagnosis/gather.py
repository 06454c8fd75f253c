"""All facts of a data folder and its machine."""

from __future__ import annotations

from pathlib import Path

from trainmaster.cli.diagnosis.cluster import cluster_facts
from trainmaster.cli.diagnosis.facts import Facts
from trainmaster.cli.diagnosis.machine import gpus, machine
from trainmaster.cli.diagnosis.manager import manager_facts
from trainmaster.cli.diagnosis.store import (
    folder_facts,
    look_into,
    place_facts,
    runs_facts,
    store_facts,
)


def gather(folder: Path, database: str) -> Facts:
    """Nothing is changed, but for a small file that is written and removed where that is to be tried."""
    look, manager = look_into(database), manager_facts(folder)
    return Facts(
        machine=machine(),
        folder=folder_facts(folder),
        store=store_facts(folder, look),
        manager=manager,
        gpus=gpus(frozenset(manager.processes)),
        runs=runs_facts(folder, look, bool(manager.processes)),
        places=place_facts(look),
        cluster=cluster_facts(folder),
    )
