"""What jobs wrote in the copies of their code."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence

from trainmaster.daemon.live_job import stored_submission
from trainmaster.daemon.service_api import Conflict, JobStatus
from trainmaster.daemon.submitted_files import SubmittedFiles
from trainmaster.model.launch_spec import LaunchSpec


class JobOutputs:
    """Lists and sends the files of a copy that its job wrote."""

    def __init__(self, files: SubmittedFiles) -> None:
        self._files = files

    async def outputs(self, job: JobStatus) -> tuple[LaunchSpec, Sequence[tuple[str, int, float]]]:
        """What a job was started from, and path, size and time of what it wrote in its copy of the code."""
        recipe = stored_submission(job.row).recipe
        found = await self._files.outputs(recipe)
        if found is None:
            raise Conflict(
                f"job {job.row.id} ran in {recipe.workdir} itself: what it wrote is there."
            )
        return recipe, found

    def outputs_archive(self, recipe: LaunchSpec) -> AsyncGenerator[bytes]:
        """What a job wrote in its copy, as a tar archive."""
        return self._files.archive(recipe)
