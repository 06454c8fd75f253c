"""An array of the Python client: one function, many calls."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, overload

from trainmaster.client.job import Job, html_table
from trainmaster.client.manager_api import ManagerApi, job_path
from trainmaster.client.waiting import as_completed
from trainmaster.text.formatting import plural

if TYPE_CHECKING:
    import pandas as pd


class JobArray(Sequence[Job]):
    """Its jobs in the order of their calls, with the arguments of each in `parameters`."""

    def __init__(
        self, api: ManagerApi, id: str, jobs: list[Job], parameters: list[Mapping[str, Any]]
    ) -> None:
        self.api = api
        self.id = id
        self.parameters = parameters
        self._jobs = jobs

    @overload
    def __getitem__(self, at: int) -> Job: ...
    @overload
    def __getitem__(self, at: slice) -> list[Job]: ...
    def __getitem__(self, at: int | slice) -> Job | list[Job]:
        return self._jobs[at]

    def __len__(self) -> int:
        return len(self._jobs)

    def wait(self, timeout: float | None = None) -> None:
        """Wait until all of them have ended; an interrupt leaves them running."""
        try:
            for _ in as_completed(self._jobs, timeout):
                pass
        except KeyboardInterrupt as stop:
            stop.add_note(f"The jobs of array {self.id} go on; jobs.cancel() ends them.")
            raise

    def results(
        self, timeout: float | None = None, *, return_exceptions: bool = False
    ) -> list[Any]:
        """What each call returned, in their order, when all have ended.

        The first that did not succeed raises its error, unless `return_exceptions` puts errors into the
        list.
        """
        self.wait(timeout)
        return [_outcome(job) if return_exceptions else job.result() for job in self._jobs]

    def as_completed(self, timeout: float | None = None) -> Iterator[Job]:
        """Each job as soon as it has ended."""
        return as_completed(self._jobs, timeout)

    def to_frame(self) -> pd.DataFrame:
        """A row for each job: its parameters, `job`, `state`, `run_s`, and its `result` where it has one."""
        import pandas as pd

        rows = []
        for job, parameters in zip(self._jobs, self.parameters, strict=True):
            row = job.row()
            result = job.result() if row.state == "succeeded" else None
            said = {"job": job.id, "state": str(row.state), "run_s": row.run_s, "result": result}
            rows.append({**parameters, **said})
        return pd.DataFrame(rows)

    def cancel(self) -> None:
        """End all that have not ended."""
        self._send("cancel")

    def suspend(self) -> None:
        self._send("suspend")

    def resume(self) -> None:
        self._send("resume")

    def _send(self, verb: str) -> None:
        self.api.post(job_path(self.id, verb))

    def __repr__(self) -> str:
        return f"<JobArray {self.id}: {plural(len(self), 'job')}>"

    def _repr_html_(self) -> str:
        return html_table(self._jobs)


def _outcome(job: Job) -> Any:
    error = job.exception()
    return job.result() if error is None else error
