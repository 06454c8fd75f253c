"""Which job a name means: an id, a name, or an element of an array by the array's name."""

from __future__ import annotations

import re

from trainmaster.daemon.daemon import Daemon
from trainmaster.daemon.service_api import JobStatus, NotFound

ELEMENT = re.compile(r"(.+)_(\d+)")
"""`sweep_3`: the third element of the array `sweep`."""


async def find_job(service: Daemon, job: str) -> JobStatus:
    """The job of that id or name; NotFound names what was asked for."""
    try:
        return await service.queries.job(job)
    except NotFound:
        named = ELEMENT.fullmatch(job)
        if named is None:
            raise
        try:
            newest = await service.queries.job(named[1])
            if newest.row.array is None:
                raise
            return await service.queries.job(f"{newest.row.array}_{named[2]}")
        except NotFound:
            pass
        raise
