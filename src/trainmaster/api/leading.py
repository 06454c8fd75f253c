"""Routes that only the manager that leads answers: standbys of its database share its folder."""

from __future__ import annotations

from typing import Any

from fastapi import Depends

from trainmaster.daemon.daemon import Daemon
from trainmaster.daemon.service_api import Unavailable


def only_of_the_leader(service: Daemon) -> Any:
    """For `dependencies` of a route or a router."""

    async def leads() -> None:
        if not service.store_name:
            trouble = service.health().trouble
            raise Unavailable(trouble or "This manager is a standby: ask the active one.")

    return Depends(leads)
