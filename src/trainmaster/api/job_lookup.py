"""Which job a name means: an id, a name, or an element of an array by the array's name."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from trainmaster.api.caller import Caller
from trainmaster.api.visibility import asker
from trainmaster.daemon.daemon import Daemon
from trainmaster.daemon.service_api import JobStatus, NotFound, RequestError

ELEMENT = re.compile(r"(.+)_(\d+)")
"""`sweep_3`: the third element of the array `sweep`."""


async def find_job(service: Daemon, job: str, caller: Caller) -> JobStatus:
    """The job of that id or name among those that the caller may see, its own first; NotFound names what
    was asked for."""
    by = asker(caller)
    try:
        return await service.queries.job(job, by)
    except NotFound:
        named = ELEMENT.fullmatch(job)
        if named is None:
            raise
        try:
            array = await service.queries.job(named[1], by)
            if not array.elements:
                raise
            return await service.queries.job(f"{array.row.id}_{named[2]}", by)
        except NotFound:
            pass
        raise


@contextmanager
def named_as(typed: str, id: str) -> Iterator[None]:
    """Let errors name a job as its user did: `job bert (33) has ended`."""
    try:
        yield
    except RequestError as error:
        if typed == id:
            raise
        said = re.sub(rf"job {re.escape(id)}(?!\w)", lambda _: f"job {typed} ({id})", str(error))
        raise type(error)(said) from error
