"""What jobs wrote in the copies of their code."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import suppress

from trainmaster.daemon.driver import Driver
from trainmaster.daemon.live_job import stored_submission
from trainmaster.daemon.service_api import Conflict, JobStatus
from trainmaster.daemon.submitted_files import SubmittedFiles
from trainmaster.model.launch_spec import LaunchSpec

BRING_S = 10.0
"""How long a request waits for files that are on their way from nodes."""


class JobOutputs:
    """Lists and sends the files of a copy that its job wrote."""

    def __init__(self, files: SubmittedFiles, driver: Driver) -> None:
        self._files = files
        self._driver = driver

    async def outputs(self, job: JobStatus) -> tuple[LaunchSpec, Sequence[tuple[str, int, float]]]:
        """What a job was started from, and path, size and time of what it wrote in its copy of the code."""
        recipe = stored_submission(job.row).recipe
        await self._bring(job.row.id)
        found = await self._files.outputs(recipe)
        if found is None:
            raise Conflict(
                f"job {job.row.id} ran in {recipe.workdir} itself: what it wrote is there."
            )
        return recipe, found

    async def _bring(self, id: str) -> None:
        """What it has written on its nodes so far, as far as that is here soon."""
        record = self._driver.controller.state.jobs.get(id)
        if record is not None:
            with suppress(TimeoutError):
                async with asyncio.timeout(BRING_S):
                    await self._driver.engine.bring(record.run)

    def outputs_archive(self, recipe: LaunchSpec) -> AsyncGenerator[bytes]:
        """What a job wrote in its copy, as a tar archive."""
        return self._files.archive(recipe)
