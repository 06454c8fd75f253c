"""The tables of `history --failures`."""

from __future__ import annotations

from typing import Any

from trainmaster.cli.support.failure_tables import show_failures


def source(name: str) -> dict[str, Any]:
    numbers = {"trials": 1, "jobs": 1, "gpu_hours": 1.0, "gpu_share": 0.1}
    return {"name": name, "reasons": ["hung"], **numbers}


def test_what_is_left_out_of_a_table_is_counted() -> None:
    empty: dict[str, Any] = {key: [] for key in ("reasons", "programs", "users", "inputs")}
    report = {
        **empty,
        "trials": 8,
        "jobs": 8,
        "gpu_hours": 8.0,
        "statuses": [],
        "nodes": [source("n0")],
        "devices": [source(f"n0:{gpu}") for gpu in range(8)],
    }
    said = "".join(show_failures(report))
    assert "n0:4" in said
    assert "n0:5" not in said
    assert said.endswith("and 3 more devices: --json lists all.\n")
    assert "more node" not in said
