"""`trainmaster status`: the manager at a glance."""

from __future__ import annotations

from pathlib import Path

import typer

from trainmaster.cli.support.console import remark, show_pairs, write_json
from trainmaster.cli.support.format import state_label
from trainmaster.cli.support.options import AsJson
from trainmaster.client.manager_api import Json, ManagerApi
from trainmaster.errors import FAILED
from trainmaster.model.topology import SLOT_TYPE
from trainmaster.text.formatting import exact_length


def status(client: ManagerApi, as_json: AsJson = False) -> None:
    """Show the manager: where it is, whether it works, its policy, its devices and jobs.

    The exit code is 1 where it cannot work now, and the reason is shown.

    Examples:
        trainmaster status
        trainmaster status --json
    """
    answer = client.get("/status")
    caller = client.caller()
    if as_json:
        where = {"url": _url(client, answer), "socket": _text(client.place.socket)}
        write_json({**answer, **where, "caller": caller})
    else:
        you = {"you": f"{caller['user']}, {caller['role']}"}
        show_pairs(pairs_of(answer, _url(client, answer)) | you)
    remark("Warning", [each for each in (answer["trouble"], *answer["notes"]) if each])
    if answer["trouble"]:
        raise typer.Exit(FAILED)


def _url(client: ManagerApi, answer: Json) -> str:
    """Where browsers find it, as far as it says so; where it was asked, else."""
    return str(answer.get("url") or client.url)


def _text(path: Path | None) -> str | None:
    return None if path is None else str(path)


def pairs_of(answer: Json, url: str) -> dict[str, str]:
    found = {
        "manager": f"{answer['role']}, version {answer['version']}, process {answer['pid']}",
        "address": url,
        **({"certificate": answer["fingerprint"]} if answer.get("fingerprint") else {}),
        "state in": answer["folder"],
        "database": answer["database"],
        **({"engine": _engine(answer)} if answer.get("cluster") else {}),
    }
    if answer["policy"] is None:
        return found
    counts = answer["jobs"]
    unit = "CPU slots" if answer["device_type"] == SLOT_TYPE else "GPUs"
    return found | {
        "policy": answer["policy"],
        "devices": f"{answer['used']} of {answer['devices']} {unit} in use",
        "jobs": "not known now" if counts is None else _listed(counts),
    }


def _engine(answer: Json) -> str:
    fence = exact_length(round(1000 * answer["fence_s"]))
    return f"{answer['engine']}, cluster at {answer['cluster']}, fence {fence}"


def _listed(counts: Json) -> str:
    shown = [f"{count} {state_label(state)}" for state, count in counts.items() if count]
    return ", ".join(shown) or "none"
