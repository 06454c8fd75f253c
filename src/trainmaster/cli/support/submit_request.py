"""Requests to submit jobs: what the submitter's environment adds, sending them once, dry runs."""

from __future__ import annotations

import os
import re
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from trainmaster.cli.explain import lines_of
from trainmaster.cli.support.console import remark, screen, write_json
from trainmaster.cli.support.files import read_text
from trainmaster.cli.support.program_profiles import with_profile
from trainmaster.client.environment import NAME, exported
from trainmaster.client.manager_api import USER, Json, ManagerApi, RequestRefused
from trainmaster.client.secret_references import by_reference, folder
from trainmaster.config.secret_names import looks_secret
from trainmaster.config.validation import ConfigError
from trainmaster.daemon.job_rows import JobRow
from trainmaster.errors import BadInput
from trainmaster.text.formatting import listing, plural

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


def with_environment(spec: Json, export_all: bool = False) -> Json:
    """The job file with its user, its working directory and variables of the submitter's shell."""
    given = spec.get("env") or {}
    if not isinstance(given, dict):
        return spec  # which the check of the file names
    # values of other types stay as they are: the check of the file names them
    env = {
        str(name): value if isinstance(value, bool | list | dict) else _value(str(name), value)
        for name, value in given.items()
    }
    in_container = bool(spec.get("container"))
    copied = exported(os.environ, everything=export_all, in_container=in_container)
    workdir = Path(str(spec.get("workdir") or ".")).expanduser()
    stated = {"user": os.environ[USER]} if os.environ.get(USER) and not spec.get("user") else {}
    return with_profile(
        spec
        | {
            **stated,
            "workdir": str(workdir.absolute()),
            "umask": spec.get("umask", f"{_umask():03o}"),
            "env": copied | env,
        }
    )


def _umask() -> int:
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


def environment_of(texts: Sequence[str], files: Sequence[Path]) -> dict[str, str]:
    """`--env-file` files and then `--env K[=V]`; a bare name copies from here."""
    found: dict[str, str] = {}
    for file in files:
        found |= _read_file(file)
    for text in texts:
        name, equals, value = text.partition("=")
        found[name] = value if equals else _value(name, None)
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
        found[name] = value if equals else _value(name, None, f"{file}, line {number}: ")
    return found


def _value(name: str, value: object, place: str = "") -> str:
    """A value as it is; none = the one of this shell."""
    if value is not None:
        return str(value)
    if name not in os.environ:
        raise BadInput(f"{place}{name} is not set here: give it a value with {name}=VALUE.")
    return os.environ[name]


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
    sent = [_without_secrets(client, each) for each in specs]
    answer = client.submit({"jobs": sent}, uuid.uuid4().hex)
    for each in answer["jobs"]:
        remark("Note", each.get("remarks") or ())
    return [Submitted(each) for each in answer["jobs"]]


def _without_secrets(client: ManagerApi, spec: Json) -> Json:
    """On one machine the values stay with their user; elsewhere they go along, and a note says so."""
    if client.place.socket is not None:
        return by_reference(spec, folder())
    clear = [name for name in spec.get("env") or () if looks_secret(str(name))]
    if clear:
        remark(
            "Note",
            [
                f"the manager gets {listing(clear)} as it is: --secret NAME=FILE names a file there"
                " instead."
            ],
        )
    return spec


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
