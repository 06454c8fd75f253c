"""Requests to submit jobs: what the submitter's environment adds, sending them once, dry runs."""

from __future__ import annotations

import re
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from trainmaster.cli.explain import lines_of
from trainmaster.cli.support.console import remark, screen, write_json
from trainmaster.client.environment import NAME
from trainmaster.client.job_request import value_of
from trainmaster.client.manager_api import Json, ManagerApi, RequestRefused
from trainmaster.client.secret_references import with_secrets_apart
from trainmaster.config.validation import ConfigError
from trainmaster.daemon.job_rows import JobRow
from trainmaster.errors import BadInput
from trainmaster.input_files import read_text
from trainmaster.text.formatting import plural

SOON_S = 1.0
"""A start that is expected within this many seconds counts as now."""


@dataclass(frozen=True, slots=True)
class Submitted:
    """The result of one job file: the job, or the array and its elements."""

    answer: Json
    """As the manager answered."""

    @property
    def id(self) -> str:
        return str(self.answer["id"])

    @property
    def name(self) -> str:
        return self.answer.get("name") or ""

    @property
    def elements(self) -> list[str]:
        """Of an array; a job stands for itself in the list of the manager."""
        return [each for each in self.answer.get("ids") or () if each != self.id]

    @property
    def sentence(self) -> str:
        """What was submitted, in words."""
        name = f" ({self.name})" if self.name else ""
        if self.elements:
            return f"Submitted array {self.id}{name}: {plural(len(self.elements), 'job')}."
        return f"Submitted job {self.id}{name}."


def environment_of(texts: Sequence[str], files: Sequence[Path]) -> dict[str, str]:
    """`--env-file` files and then `--env K[=V]`; a bare name copies from here."""
    found: dict[str, str] = {}
    for file in files:
        found |= _read_file(file)
    for text in texts:
        name, equals, value = text.partition("=")
        found[name] = value if equals else value_of(name, None)
    return found


def secrets_of(texts: Sequence[str]) -> dict[str, str]:
    """`--secret NAME=FILE`, each with an absolute path."""
    found: dict[str, str] = {}
    for text in texts:
        name, equals, path = text.partition("=")
        if not equals or not path or not NAME.fullmatch(name):
            raise BadInput(f"--secret {text}: write NAME=FILE, a file that only you can read.")
        found[name] = str(Path(path).expanduser().absolute())
    return found


def _read_file(file: Path) -> dict[str, str]:
    found: dict[str, str] = {}
    for number, line in enumerate(read_text(file, "--env-file").splitlines(), start=1):
        text = line.strip().removeprefix("export ")
        if not text or text.startswith("#"):
            continue
        name, equals, value = (part.strip() for part in text.partition("="))
        if not NAME.fullmatch(name):
            raise BadInput(
                f"{file}, line {number}: {name!r} is not the name of a variable: letters, digits and _"
                " only, no digit first."
            )
        if len(value) > 1 and value[0] == value[-1] and value[0] in "\"'":
            value = value[1:-1]
        found[name] = value if equals else value_of(name, None, f"{file}, line {number}: ")
    return found


FLAGS = {
    "max_runtime": "--time",
    "memory": "--mem",
    "depends_on": "--after",
    "grace_period": "--grace",
    "secrets": "--secret",
}
"""Options whose name is not that of the field."""
FIELD = re.compile(r"(?:job \d+: )?([a-z_]+)\b")


@contextmanager
def naming_flags() -> Iterator[None]:
    """What is wrong with a job that was typed as options, by the names of the options."""
    try:
        yield
    except ConfigError as bad:
        raise BadInput(_in_flags(str(bad))) from None
    except RequestRefused as no:
        raise RequestRefused(_in_flags(str(no)), no.status) from None


def check_flags(spec: Json) -> None:
    """Check a job that was typed as options before anything is sent; by `naming_flags`."""
    from trainmaster.config.job_file import job_file_of

    job_file_of(spec)


def _in_flags(sentence: str) -> str:
    """The sentence with the option in the place of the field that it begins with."""
    from trainmaster.config.job_file import JobFile

    found = FIELD.match(sentence)
    if found is None or found[1] not in JobFile.model_fields or found[1] == "command":
        return sentence
    flag = FLAGS.get(found[1], f"--{found[1].replace('_', '-')}")
    return f"{flag}{sentence[found.end() :]}"


def send(client: ManagerApi, specs: Sequence[Json]) -> list[Submitted]:
    """Submit them, all or none, exactly once."""
    sent = []
    for each in specs:
        spec, note = with_secrets_apart(client.place, each)
        remark("Note", [note] if note else [])
        sent.append(spec)
    answer = client.submit({"jobs": sent}, uuid.uuid4().hex)
    for each in answer["jobs"]:
        remark("Note", each.get("remarks") or ())
    return [Submitted(each) for each in answer["jobs"]]


def show_dry_run(client: ManagerApi, specs: Sequence[Json], as_json: bool) -> None:
    """Ask the manager, and say for each job what it would be and when it would start."""
    answer = client.post("/jobs", {"jobs": list(specs)}, {"dry_run": "true"})
    if as_json:
        write_json(answer)
        return
    console = screen()
    for each in answer["jobs"]:
        row = JobRow.from_json(each["job"])
        gpus = f"{row.gpus:g} {'GPU' if row.gpus == 1 else 'GPUs'}"
        what = f"Would submit {row.name}: {gpus}, queue {row.queue}, user {row.user}."
        console.print(what, markup=False)
        explanation = {
            "sentence": row.why or _expected(each["forecast"]),
            "code": row.reason.code if row.reason else "",
            "forecast": each["forecast"],
            "remarks": each["job"]["remarks"],
        }
        for line in lines_of(explanation):
            console.print(f"  {line}", markup=False)


def _expected(forecast: Json | None) -> str:
    """What the forecast says, in words: a job that was not submitted has no reason to wait yet."""
    if forecast is None or forecast["start_s"] is None:
        return "It is not known yet what it would wait for."
    starts_now = forecast["start_s"] - time.time() < SOON_S
    return "Nothing is in its way." if starts_now else "Other jobs would run first."
