"""Answers of the API for tests of the command line, with every field that the real ones have."""

from __future__ import annotations

from typing import Any

NOW = 1_800_000_000.0


def job_row(id: str, state: str = "running", **more: Any) -> dict[str, Any]:
    """A job as lists and commands answer it."""
    return {
        "id": id,
        "name": f"job-{id}",
        "user": "ada",
        "queue": "default",
        "state": state,
        "transition": None,
        "suspended_by": None,
        "reason": None,
        "gpus": 2,
        "nodes": ["n0"],
        "devices": ["n0:0", "n0:1"],
        "submit_s": NOW,
        "start_s": NOW + 60,
        "finish_s": None,
        "gpus_now": 2,
        "min_gpus": None,
        "max_gpus": None,
        "queue_s": 60.0,
        "waiting_s": None,
        "run_s": 125.0,
        "lost_s": 0.0,
        "gpu_s": 250.0,
        "priority": 0,
        "attempt": 1,
        "restarts": 0,
        "preemptions": 0,
        "exit_code": None,
        "end_reason": None,
        "deadline": None,
        "array": None,
        "array_index": None,
        "progress": None,
        "prerun": None,
        "hung": None,
        **more,
    }


def job_details(id: str, state: str = "running", **more: Any) -> dict[str, Any]:
    """A job as GET /jobs/{job} answers it."""
    details = {
        "uuid": f"uuid-of-{id}",
        "failures": 0,
        "retries": 2,
        "migrations": 0,
        "pids": [],
        "ran_in": None,
        "saved_at_s": None,
        "remarks": [],
        "elements": None,
        "failure": None,
        "gpu_use": [],
        "shared_by": None,
        "memory_enforced": None,
        "memory": None,
        "profile": None,
        "last_lines": [],
        "spec": {},
    }
    return job_row(id, state, **(details | more))


def node_row(name: str, type: str = "H100", **more: Any) -> dict[str, Any]:
    """A node as GET /nodes answers it."""
    return {
        "name": name,
        "host": None,
        "domains": {},
        "type": type,
        "speed": 1.0,
        "speed_source": "assumed",
        "state": "up",
        "devices": [],
        "frozen": [],
        "leaving": [],
        "cpus": 16,
        "memory_bytes": 64 << 30,
        "remarks": [],
        **more,
    }


def node_list(*nodes: dict[str, Any]) -> dict[str, Any]:
    return {"nodes": [*nodes], "left_out": []}


def end(code: str, sentence: str, **more: Any) -> dict[str, Any]:
    """Why a job ended, as its row says."""
    return {"code": code, "sentence": sentence, **more}


def story_entry(at_s: float, what: str, sentence: str) -> dict[str, Any]:
    return {"at_s": at_s, "step": 1, "what": what, "sentence": sentence, "detail": {}}


def forecast(start_s: float | None, basis: str) -> dict[str, Any]:
    return {"start_s": start_s, "basis": basis, "sentence": "It is expected to start."}


def job_list(*jobs: dict[str, Any], next: str | None = None) -> dict[str, Any]:
    return {"jobs": list(jobs), "next": next, "counts": {}, "notes": []}
