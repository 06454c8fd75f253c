"""The Python client: functions and commands as jobs of a manager.

client = trainmaster.Client()
job = client.submit(train, lr=0.1, gpus=2)
job.result()
"""

from __future__ import annotations

import itertools
import sys
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from trainmaster.client import function_folder as files
from trainmaster.client.function_folder import RUNNER, Call
from trainmaster.client.job import Job
from trainmaster.client.job_array import JobArray
from trainmaster.client.job_fields import check_call, check_fields, name_of, split
from trainmaster.client.job_lists import elements_of
from trainmaster.client.job_request import with_environment
from trainmaster.client.manager_api import Json, ManagerApi, job_path
from trainmaster.client.notes import note
from trainmaster.client.polling import retry
from trainmaster.client.secret_references import with_secrets_apart

Command = str | Sequence[str]
NO_RETRIES = {"retries": 0}
"""Unless something else is said, as of `trainmaster run`: an exception is wanted at once."""


class Client:
    """The manager that the arguments, else the environment, else files point to, as for the command line.

    Further keywords are fields of every job that it submits: `Client(queue="nlp", gpus=1)`. `folder` is where
    functions and results are kept, readable by you alone; on a cluster all nodes must see it. `python` is the
    interpreter that functions run in.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        data: str | Path | None = None,
        token_file: str | Path | None = None,
        folder: str | Path | None = None,
        python: str | None = None,
        **fields: Any,
    ) -> None:
        check_fields(fields)
        self.api = ManagerApi(url, _path(data), _path(token_file))
        self.folder = files.default_place() if folder is None else Path(folder).absolute()
        self.python = python or sys.executable
        self.fields = {**NO_RETRIES, **fields}

    def using(self, **fields: Any) -> Client:
        """A client of the same manager, with other fields for its jobs."""
        check_fields(fields)
        made = Client.__new__(Client)
        made.__dict__ = {**self.__dict__, "fields": {**self.fields, **fields}}
        return made

    # -- submitting --------------------------------------------------------------------------------------

    def submit(
        self, what: Callable[..., Any] | Command, /, *positional: Any, **keywords: Any
    ) -> Job:
        """Submit a function with its arguments, or a command: a list of words, or a line for the shell.

        Keywords that are fields of the job file (`gpus`, `queue`, `max_runtime`) are the job's, all others
        are the function's.
        """
        if not callable(what):
            if positional:
                raise TypeError("A command takes no arguments: put them into the command.")
            check_fields(keywords)
            words = what if isinstance(what, str) else [str(each) for each in what]
            answer = self._send({**self.fields, **keywords, "command": words})
            return Job(self.api, str(answer["id"]), name=answer.get("name") or "")
        job, named = split(what, keywords)
        check_call(what, positional, named)
        answer, folder = self._send_calls(what, [Call(positional, named)], job)
        return Job(self.api, str(answer["id"]), folder, name=answer.get("name") or "")

    def map(
        self,
        function: Callable[..., Any],
        /,
        *iterables: Iterable[Any],
        at_once: int | None = None,
        **keywords: Any,
    ) -> JobArray:
        """An array with a job for each item, as the built-in `map` calls a function.

        `at_once` is how many may run at the same time. Keywords are those of `submit`, the same for all.
        """
        job, named = split(function, keywords)
        calls = [Call(each, named) for each in zip(*iterables, strict=True)]
        parameters = [_named(call.positional) for call in calls]
        return self._submit_array(function, calls, parameters, job, at_once)

    def grid(
        self, function: Callable[..., Any], /, *, at_once: int | None = None, **keywords: Any
    ) -> JobArray:
        """An array with a job for each combination of the lists: `grid(train, lr=[0.1, 0.01], depth=[1, 2])`.

        What is no list is the same for all.
        """
        job, named = split(function, keywords)
        axes = {name: _values(value) for name, value in named.items()}
        combinations = [
            dict(zip(axes, each, strict=True)) for each in itertools.product(*axes.values())
        ]
        calls = [Call((), each) for each in combinations]
        return self._submit_array(function, calls, combinations, job, at_once)

    def _submit_array(
        self,
        function: Callable[..., Any],
        calls: Sequence[Call],
        parameters: Sequence[Mapping[str, Any]],
        job: Mapping[str, Any],
        at_once: int | None,
    ) -> JobArray:
        if not calls:
            raise ValueError("There is nothing to run: a list of arguments is empty.")
        for call in calls:
            check_call(function, call.positional, call.named or {})
        limit = "" if at_once is None else f"%{at_once}"
        array = {**job, "array": f"0-{len(calls) - 1}{limit}"}
        answer, folder = self._send_calls(function, calls, array)
        ids = [str(each) for each in answer["ids"]]
        name = answer.get("name") or ""
        jobs = [Job(self.api, id, folder, index, name) for index, id in enumerate(ids)]
        return JobArray(self.api, str(answer["id"]), jobs, list(parameters))

    def _send_calls(
        self, function: Callable[..., Any], calls: Sequence[Call], job: Mapping[str, Any]
    ) -> tuple[Json, Path]:
        folder = files.new_folder(self.folder, function, calls)
        command = [self.python, "-m", RUNNER, str(folder)]
        try:
            said = {"name": name_of(function), **self.fields, **job, "command": command}
            return self._send(said), folder
        except BaseException:
            files.remove(folder)
            raise

    def _send(self, fields: Mapping[str, Any]) -> Json:
        from trainmaster.config.job_file import job_file_of  # it takes long to import
        from trainmaster.config.validation import ConfigError

        spec = with_environment({name: _plain(value) for name, value in fields.items()})
        try:
            job_file_of(spec)
        except ConfigError as wrong:
            raise ValueError(str(wrong)) from None
        spec, remark = with_secrets_apart(self.api.place, spec)
        (answer,) = self.api.submit({"jobs": [spec]}, uuid.uuid4().hex)["jobs"]
        for each in filter(None, (remark, *(answer.get("remarks") or ()))):
            note(f"Note: {each}")
        found: Json = answer
        return found

    # -- what was submitted before -----------------------------------------------------------------------

    def job(self, job: str | int) -> Job:
        """A job by its id or name; of a function of yours, `result` works as where it was submitted."""
        found = retry(self.api, lambda: self.api.get(job_path(str(job))))
        return Job(
            self.api,
            str(found["id"]),
            _folder_of(found),
            found.get("array_index") or 0,
            found["name"],
        )

    def array(self, array: str | int) -> JobArray:
        """An array by its id or name."""
        found = retry(self.api, lambda: self.api.get(job_path(str(array))))
        rows = elements_of(self.api, str(found["id"]))
        if not rows:
            raise ValueError(f"{array} is not an array.")
        folder = _folder_of(found)
        jobs = [Job(self.api, row.id, folder, row.array_index or 0, row.name) for row in rows]
        numbers: list[Mapping[str, Any]] = [{"index": job.index} for job in jobs]
        return JobArray(self.api, str(found["id"]), jobs, numbers)

    def __repr__(self) -> str:
        return f"<Client of {self.api.url}>"


def _folder_of(found: Json) -> Path | None:
    """Where the function of a job is, if it is one."""
    command = (found.get("spec") or {}).get("command")
    if not isinstance(command, list) or command[1:-1] != ["-m", RUNNER]:
        return None
    return Path(str(command[-1]))


def _named(values: tuple[Any, ...]) -> dict[str, Any]:
    """The arguments of a call of `map`, as columns."""
    return (
        {"item": values[0]}
        if len(values) == 1
        else {f"item_{place}": value for place, value in enumerate(values)}
    )


def _values(value: Any) -> list[Any]:
    """The values of a parameter of a grid: of a list or the like each, else the one."""
    if isinstance(value, list | tuple | range | set | frozenset) or hasattr(value, "tolist"):
        return list(value.tolist() if hasattr(value, "tolist") else value)
    return [value]


def _plain(value: Any) -> Any:
    """Paths as text; numbers of numpy as Python's own."""
    if isinstance(value, Path):
        return str(value)
    return value.item() if hasattr(value, "item") else value


def _path(value: str | Path | None) -> Path | None:
    return None if value is None else Path(value)
