"""All nodes: what is there, and how it is used."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from nicegui import ui

from trainmaster.api.web.frame import frame
from trainmaster.api.web.parts.refreshed import keep_fresh
from trainmaster.api.web.parts.sheet import Column, Sheet
from trainmaster.api.web.parts.tiles import Tiles
from trainmaster.api.web.viewer import Manager
from trainmaster.text.formatting import share, size

EVERY_S = 10.0
COLUMNS = (
    Column("name", "node", to="/nodes/{}"),
    Column("state", "state"),
    Column("type", "type"),
    Column("speed", "speed", is_number=True),
    Column("used", "devices used", is_number=True),
    Column("util", "utilisation", is_number=True),
    Column("memory", "GPU memory", is_number=True),
    Column("jobs", "jobs", is_number=True),
    Column("where", "rack"),
    Column("remarks", "remarks", wraps=True),
)
LEFT_OUT = (Column("name", "node"), Column("why", "why it is not used", wraps=True))


def add(manager: Manager) -> None:
    @ui.page("/nodes")
    async def nodes() -> None:
        viewer = await manager.viewer()
        with frame(viewer, "Nodes"):
            tiles = Tiles("Nodes", "Devices used", "Not up", "Devices set aside")
            sheet = Sheet(COLUMNS, key="name", empty="There are no nodes.")
            ui.label("Nodes of the cluster that are not used").classes("text-base font-medium")
            left_out = Sheet(LEFT_OUT, key="name", empty="There are none.")

            async def refresh() -> None:
                answer = await viewer.api.get("/nodes")
                rows = answer["nodes"]
                devices = [each for row in rows for each in row["devices"]]
                used = sum(bool(each["jobs"]) for each in devices)
                tiles.show(
                    {
                        "Nodes": str(len(rows)),
                        "Devices used": f"{used} of {len(devices)}",
                        "Not up": str(sum(row["state"] != "up" for row in rows)),
                        "Devices set aside": str(
                            sum(each["set_aside"] is not None for each in devices)
                        ),
                    }
                )
                sheet.show(map(_cells, rows))
                left_out.show(answer["left_out"])

            await keep_fresh(refresh, EVERY_S)


def _cells(row: Mapping[str, Any]) -> Mapping[str, Any]:
    devices = row["devices"]
    gpus = [each["gpu"] for each in devices if each["gpu"] is not None]
    utils = [each["util"] for each in gpus if each["util"] is not None]
    memory = [each["memory_used_bytes"] for each in gpus if each["memory_used_bytes"] is not None]
    used = sum(bool(each["jobs"]) for each in devices)
    jobs = {job for each in devices for job in each["jobs"]} | set(row["frozen"])
    mean = sum(utils) / len(utils) if utils else None
    return {
        "name": row["name"],
        "state": row["state"],
        "type": row["type"],
        "speed": (row["speed"], speed_words(row)),
        "used": (used, f"{used} of {len(devices)}"),
        "util": (mean or 0, share(mean)),
        "memory": (sum(memory), size(sum(memory)) if memory else ""),
        "jobs": len(jobs),
        "where": row["domains"].get("rack", ""),
        "remarks": " ".join(row["remarks"]),
    }


def speed_words(row: Mapping[str, Any]) -> str:
    """`0.4 (measured)`."""
    return f"{row['speed']:g} ({row['speed_source']})"
