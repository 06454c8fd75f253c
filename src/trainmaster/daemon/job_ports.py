"""Connections to ports that a job's processes listen on: TensorBoard, notebooks."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from trainmaster.daemon.driver import Driver
from trainmaster.daemon.service_api import Conflict, JobStatus
from trainmaster.model.job_state import JobState


@dataclass(frozen=True, slots=True)
class PortConnection:
    """Both directions of a connection to a job."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter


class JobPorts:
    """Connects to a job's own ports, and to no others of the machine."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver

    async def connect(self, job: JobStatus, port: int) -> PortConnection:
        """Conflict where the job does not run, or none of its processes listens there."""
        id = job.row.id
        if job.elements:
            first = job.elements[0].row.id
            raise Conflict(f"{id} is an array: name one of its jobs, such as {first}.")
        if job.row.state != JobState.RUNNING:
            raise Conflict(f"job {id} is {job.row.state}, so nothing of it listens on port {port}.")
        record = self._driver.jobs[id].record if id in self._driver.jobs else None
        elsewhere = "" if record is None else self._driver.node_elsewhere(record.run)
        if elsewhere:
            raise Conflict(
                f"job {id} runs on node {elsewhere}, which is another machine than the manager's: connect to"
                f" port {port} there."
            )
        made = await asyncio.to_thread(self._driver.engine.connect, id, port)
        if made is None:
            raise Conflict(
                f"no process of job {id} listens on port {port}: `trainmaster logs {id}` may say which port"
                " it took, or that it is not up yet."
            )
        made.setblocking(False)
        return PortConnection(*await asyncio.open_connection(sock=made))
