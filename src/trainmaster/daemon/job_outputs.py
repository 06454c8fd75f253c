"""What jobs wrote in the copies of their code."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

from trainmaster.daemon.live_job import stored_submission
from trainmaster.daemon.service_api import Conflict, JobStatus
from trainmaster.daemon.submitted_files import SubmittedFiles


class JobOutputs:
    """Lists and sends the files of a copy that its job wrote."""

    def __init__(self, files: SubmittedFiles) -> None:
        self._files = files

    async def outputs(self, job: JobStatus) -> tuple[str, Sequence[tuple[str, int, float]]]:
        """The copy that a job ran in, and path, size and time of what it wrote there."""
        folder = stored_submission(job.row).recipe.workdir
        found = await self._files.outputs(folder)
        if found is None:
            raise Conflict(f"job {job.row.id} ran in {folder} itself: what it wrote is there.")
        return folder, found

    def outputs_archive(self, folder: str) -> AsyncIterator[bytes]:
        """What a job wrote in its copy, as a tar archive."""
        return self._files.archive(folder)
