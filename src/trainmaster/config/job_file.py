"""The job file: what a user may say about a job, how each key is read, and how the JSON Schema shows it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal, Self, cast

from pydantic import ConfigDict, Field, PlainValidator, WithJsonSchema, model_validator

from trainmaster.config import units
from trainmaster.config.notifications import TARGETS_SCHEMA, Notify
from trainmaster.config.units import Gpus
from trainmaster.config.validation import (
    ConfigError,
    FileModel,
    Lines,
    checked,
    scaled,
    shown,
)
from trainmaster.config.yaml_file import check_plain, read_documents
from trainmaster.model.profile import Profile, profile_of
from trainmaster.model.submission import Array, Dependency
from trainmaster.model.units import NOMINAL, WHOLE
from trainmaster.text.control_characters import BASIC_UNSAFE

Raw = dict[str, object]
CONTAINERS = ("apptainer", "enroot", "docker", "podman")
"""Programs that run containers."""
OTHER_WORDS = {
    "accelerators": "gpus",
    "after": "depends_on",
    "cmd": "command",
    "cpu": "cpus",
    "cwd": "workdir",
    "dependencies": "depends_on",
    "entrypoint": "command",
    "environment": "env",
    "envs": "env",
    "gpu": "gpus",
    "gpu_count": "gpus",
    "gpu_fraction": "gpus",
    "image": "container",
    "max_duration": "max_runtime",
    "max_retries": "retries",
    "mem": "memory",
    "num_gpus": "gpus",
    "partition": "queue",
    "resources": "gpus",
    "run": "command",
    "script": "command",
    "time": "max_runtime",
    "time_limit": "max_runtime",
    "timeout": "max_runtime",
    "working_dir": "workdir",
}
"""What other systems call our fields."""

MOST_CPUS = 10_000
BIGGEST_PRIORITY = 1_000_000

OCTAL = re.compile(r"0?[0-7]{1,3}")
VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
NAME_PATTERN = rf"^[^\s/{BASIC_UNSAFE}]([^/{BASIC_UNSAFE}]{{0,98}}[^\s/{BASIC_UNSAFE}])?$"
NAME = re.compile(NAME_PATTERN[1:-1])


def read_name(value: object) -> str:
    if isinstance(value, int) and not isinstance(value, bool):
        value = str(value)
    if not isinstance(value, str) or not NAME.fullmatch(value) or not value.isprintable():
        raise ValueError(
            "must be 1 to 100 characters without a slash, a space at its ends, or a sign that is not"
            " printable (a line break, an escape, a change of direction, a sign without a width), not"
            f" {shown(value)}"
        )
    return value


def read_job_name(value: object) -> str:
    name = read_name(value)
    if units.JOB_ID.fullmatch(name):
        raise ValueError(f"must not look like a job's id, as {shown(value)} does: put a letter in")
    return name


def read_command(value: object) -> tuple[str, ...] | str:
    if isinstance(value, str) and value.strip():
        return value
    if (
        isinstance(value, list)
        and value
        and all(isinstance(each, str) for each in value)
        and value[0]
    ):
        return tuple(value)
    raise ValueError(
        "must be a text for the shell (python train.py) or a list of words ([python, train.py]),"
        f" not {shown(value)}"
    )


def read_cpus(value: object) -> int:
    if (
        isinstance(value, bool)
        or not isinstance(value, int | float)
        or not 0.001 <= value <= MOST_CPUS
    ):
        raise ValueError(f"must be a number of cores such as 4 or 0.5, not {shown(value)}")
    return round(value * WHOLE)


def read_umask(value: object) -> int:
    if not isinstance(value, str) or not OCTAL.fullmatch(value):
        raise ValueError(
            f'must be octal digits in quotes, such as "022" or "077", not {shown(value)}'
        )
    return int(value, 8)


def read_env(value: object) -> dict[str, str]:
    if not isinstance(value, Mapping):
        raise ValueError(f"must be a mapping of names to values, not {shown(value)}")
    found = {}
    for name, each in value.items():
        if not isinstance(name, str) or not VARIABLE.fullmatch(name):
            raise ValueError(
                f"has the name {shown(name)}: letters, digits and _ only, no digit first"
            )
        if isinstance(each, bool) or not isinstance(each, str | int | float):
            raise ValueError(f"has {name} = {shown(each)}: a value is a text or a number; quote it")
        found[name] = str(each)
    return found


def read_secrets(value: object) -> dict[str, str]:
    found = read_env(value)
    for name, path in found.items():
        if not path.startswith(("/", "~", "./", "../")):
            raise ValueError(
                f"has {name} = {shown(path)}: name a file such as ~/.secrets/wandb, never the value itself"
            )
    return found


def read_path(value: object) -> str:
    if not isinstance(value, str) or not value.strip():
        raise ValueError(f"must be a path, not {shown(value)}")
    return value


def read_paths(value: object) -> tuple[str, ...]:
    given = value if isinstance(value, list) else [value]
    return tuple(read_path(each) for each in given)


DURATION_SCHEMA = {
    "anyOf": [
        {"type": "string", "pattern": r"^ *([0-9]+(\.[0-9]+)? *(ms|[smhdw]) *)+$"},
        {"type": "string", "pattern": r"^ *[0-9]{1,6}:[0-9]{1,2}(:[0-9]{1,2})? *$"},
    ],
    "examples": ["90s", "30m", "4h", "2d", "1:30:00"],
}
SIZE_SCHEMA = {
    "type": "string",
    "pattern": r"^ *[0-9]+(\.[0-9]+)? *([kKmMgGtT](i?[bB])?|i?[bB]) *$",
    "examples": ["16GiB", "16G", "512M"],
}
NAME_SCHEMA = {"type": "string", "minLength": 1, "maxLength": 100, "pattern": NAME_PATTERN}
GPUS_SCHEMA = {
    "anyOf": [
        {"type": "integer", "minimum": 1, "maximum": units.MOST_GPUS},
        {"type": "number", "minimum": 0.001, "exclusiveMaximum": 1},
        {
            "type": "string",
            "pattern": r"^([A-Za-z0-9][^:]*:)?([0-9]+( *- *[0-9]+)?|[0-9]*\.[0-9]+)$|^[A-Za-z][^:]*$",
        },
    ],
    "examples": [8, "2-8", 0.5, "H100:2"],
}
ARRAY_SCHEMA = {
    "anyOf": [
        {"type": "integer", "minimum": 1, "maximum": units.MOST_ELEMENTS},
        {"type": "string", "pattern": r"^[0-9]+(-[0-9]+)?(,[0-9]+(-[0-9]+)?)*(%[1-9][0-9]*)?$"},
        {
            "type": "array",
            "items": {"type": "integer", "minimum": 0, "maximum": units.LARGEST_INDEX},
            "minItems": 1,
            "maxItems": units.MOST_ELEMENTS,
            "uniqueItems": True,
        },
    ],
    "examples": ["0-99%8", 100, [1, 5, 9]],
}
DEPENDENCY_SCHEMA = {
    "anyOf": [
        {"type": "integer", "minimum": 0, "maximum": 10**15 - 1},
        {"type": "string", "pattern": r"^[0-9]{1,15}(_[0-9]{1,10})?(:(ok|any|fail))?$"},
        {"type": "string", "pattern": rf"^{units.JOB_NAME.pattern}(:(ok|any|fail))?$"},
    ]
}

Duration = Annotated[int, PlainValidator(units.duration_ms), WithJsonSchema(DURATION_SCHEMA)]
Size = Annotated[int, PlainValidator(units.size_bytes), WithJsonSchema(SIZE_SCHEMA)]
Name = Annotated[str, PlainValidator(read_name), WithJsonSchema(NAME_SCHEMA)]
JobName = Annotated[str, PlainValidator(read_job_name), WithJsonSchema(NAME_SCHEMA)]
PATH_SCHEMA = {"type": "string", "minLength": 1, "pattern": r"\S"}


COMMAND_SCHEMA = {
    "anyOf": [
        {"type": "string", "minLength": 1, "pattern": r"\S"},
        {
            "type": "array",
            "items": {"type": "string"},
            "prefixItems": [{"type": "string", "minLength": 1}],
            "minItems": 1,
        },
    ],
    "examples": ["python train.py --epochs 10", ["python", "train.py"]],
}
CPUS_SCHEMA = {"type": "number", "minimum": 0.001, "maximum": MOST_CPUS, "examples": [4, 0.5]}
ENV_SCHEMA = {
    "type": "object",
    "propertyNames": {"pattern": "^[A-Za-z_][A-Za-z0-9_]*$"},
    "additionalProperties": {"type": ["string", "number"]},
    "examples": [{"NCCL_DEBUG": "INFO", "EPOCHS": 10}],
}
UMASK_SCHEMA = {"type": "string", "pattern": "^0?[0-7]{1,3}$", "examples": ["022", "077"]}
PATHS_SCHEMA = {"anyOf": [PATH_SCHEMA, {"type": "array", "items": PATH_SCHEMA}]}
DEPENDENCIES_SCHEMA = {
    "anyOf": [*DEPENDENCY_SCHEMA["anyOf"], {"type": "array", "items": DEPENDENCY_SCHEMA}]
}

Command = Annotated[
    str | tuple[str, ...], PlainValidator(read_command), WithJsonSchema(COMMAND_SCHEMA)
]
GpuAmount = Annotated[Gpus, PlainValidator(units.gpus_of), WithJsonSchema(GPUS_SCHEMA)]
Cores = Annotated[int, PlainValidator(read_cpus), WithJsonSchema(CPUS_SCHEMA)]
SECRETS_SCHEMA = {
    "type": "object",
    "propertyNames": {"pattern": "^[A-Za-z_][A-Za-z0-9_]*$"},
    "additionalProperties": PATH_SCHEMA,
    "examples": [{"WANDB_API_KEY": "~/.secrets/wandb"}],
}
Secrets = Annotated[dict[str, str], PlainValidator(read_secrets), WithJsonSchema(SECRETS_SCHEMA)]
Variables = Annotated[dict[str, str], PlainValidator(read_env), WithJsonSchema(ENV_SCHEMA)]
PathText = Annotated[str, PlainValidator(read_path), WithJsonSchema(PATH_SCHEMA)]
PathTexts = Annotated[tuple[str, ...], PlainValidator(read_paths), WithJsonSchema(PATHS_SCHEMA)]
Priority = Annotated[int, Field(strict=True, ge=-BIGGEST_PRIORITY, le=BIGGEST_PRIORITY)]
Slowdown = Annotated[
    int,
    scaled(NOMINAL, ge=0, lt=1),
    WithJsonSchema({"type": "number", "minimum": 0, "exclusiveMaximum": 1}),
]
Umask = Annotated[int, PlainValidator(read_umask), WithJsonSchema(UMASK_SCHEMA)]
Retries = Annotated[int, Field(strict=True, ge=0, le=1000)]
Steps = Annotated[int, Field(strict=True, ge=1, le=10**15)]
Elements = Annotated[Array, PlainValidator(units.array_of), WithJsonSchema(ARRAY_SCHEMA)]
Dependencies = Annotated[
    tuple[Dependency, ...],
    PlainValidator(units.dependencies_of),
    WithJsonSchema(DEPENDENCIES_SCHEMA),
]


def _with_short_form(schema: dict[str, Any]) -> None:
    """`notify: ada@example.org`."""
    schema["anyOf"].insert(0, TARGETS_SCHEMA)


class Container(FileModel):
    """A container that the command runs in: one of these programs, which must be installed."""

    apptainer: str | None = Field(None, description="Image for `apptainer exec`.", min_length=1)
    enroot: str | None = Field(
        None, description="Image or container for `enroot start`.", min_length=1
    )
    docker: str | None = Field(None, description="Image for `docker run`.", min_length=1)
    podman: str | None = Field(None, description="Image for `podman run`.", min_length=1)
    options: tuple[str, ...] = Field(
        (),
        strict=False,
        description="More options for that program, word by word, as far as the manager allows them.",
    )

    @model_validator(mode="after")
    def _has_one(self) -> Container:
        if len(self._named()) != 1:
            raise ValueError(f"must name one of {', '.join(CONTAINERS)} with its image")
        if self.image.startswith("-"):  # the program would take it for an option
            raise ValueError(f"has {self.image!r} as its image: options go into `options`")
        return self

    def _named(self) -> dict[str, str]:
        said = {name: getattr(self, name) for name in CONTAINERS}
        return {name: image for name, image in said.items() if image}

    @property
    def program(self) -> str:
        return next(iter(self._named()))

    @property
    def image(self) -> str:
        return self._named()[self.program]


Micros = Annotated[int, Field(strict=True, ge=1, le=10**12)]
Bytes = Annotated[int, Field(strict=True, ge=1, le=10**15)]


class ProfileEntry(FileModel):
    """What was measured of its program on one device."""

    step_us: Micros | None = Field(None, description="Microseconds of a step.")
    batch: Steps | None = Field(None, description="Examples in a step.")
    sync_bytes: Bytes | None = Field(
        None, description="Bytes of the parameters that it trains, whose gradients GPUs exchange."
    )
    cpu_us: Micros | None = Field(None, description="Microseconds of CPU time for a step.")
    activation_bytes: Bytes | None = Field(
        None, description="Bytes of GPU memory that a step takes and gives back."
    )
    memory_low: Bytes | None = Field(
        None, description="Bytes that it needs at least on each GPU, estimated from its model."
    )
    memory_expected: Bytes | None = Field(None, description="What it is expected to need there.")
    memory_high: Bytes | None = Field(None, description="What it needs there at most.")

    @model_validator(mode="after")
    def _has_bounds(self) -> Self:
        profile_of(self.stated())
        return self

    @property
    def profile(self) -> Profile:
        return profile_of(self.stated())


class JobFile(FileModel):
    """A training program and what it asks for. Everything but the command may be left out."""

    model_config = ConfigDict(
        title="Trainmaster job",
        json_schema_extra={
            "examples": [
                {"command": "python train.py"},
                {
                    "name": "resnet",
                    "command": "torchrun train.py",
                    "gpus": "2-8",
                    "max_runtime": "4h",
                },
            ]
        },
    )

    other_words: ClassVar[Mapping[str, str]] = OTHER_WORDS

    name: JobName | None = Field(
        None, description="What to call it; by default its program's name."
    )
    command: Command = Field(description="A text for /bin/sh -c, or a list of words.")
    gpus: GpuAmount = Field(
        Gpus(1, 1),
        description="How many GPUs: 8; 2-8 for a job that can be resized; 0.5 for a part of one;"
        " H100:2 for a type. By default 1. On a machine without GPUs, CPU slots stand in.",
    )
    gpu_memory: Size | None = Field(
        None,
        description="GPU memory to book on each GPU; by default none, or for a part of a GPU that"
        " part of its memory.",
    )
    memory: Size | None = Field(
        None,
        description="Host memory for each GPU, or beside a part of one in all: booked, and the most that"
        " it may use.",
    )
    cpus: Cores | None = Field(
        None,
        description="CPU cores for each GPU, or beside a part of one in all: booked, and the most that it"
        " may use.",
    )
    queue: Name = Field("default", description="The queue that it waits in.")
    user: Name | None = Field(None, description="Whose job it is; by default the submitter's.")
    priority: Priority = Field(0, description="Higher goes first, where the policy looks at it.")
    role: Literal["guaranteed", "opportunistic"] = Field(
        "guaranteed",
        alias="class",
        description="guaranteed is owed its speed; opportunistic lives on what is left over.",
    )
    tolerance: Slowdown = Field(
        30_000,
        description="How much longer a step of a guaranteed job may take because of opportunistic ones"
        " on its GPU: 0.03 is 3 %.",
    )
    sharing: Literal["exclusive", "mps", "time"] | None = Field(
        None,
        description="How its GPU may be shared; by default exclusive for whole GPUs, mps for parts.",
    )
    model: Name | None = Field(None, description="The model it trains, such as resnet50, if known.")
    env: Variables = Field(
        default_factory=dict, description="Environment variables of its processes."
    )
    secrets: Secrets = Field(
        default_factory=dict,
        description="Environment variables whose values are in files that only you can read: names, and"
        " paths. They are read when it starts, and hidden in its output.",
    )
    workdir: PathText | None = Field(
        None, description="The folder that it runs in; by default where it was submitted from."
    )
    umask: Umask = Field(
        0o022,
        description="Rights that files of its processes do not get, in octal digits; by default the"
        " submitter's umask.",
    )
    snapshot: bool | None = Field(
        None,
        description="Run in a copy of the code in workdir as it is at submission, instead of in"
        " workdir itself. By default only where the nodes do not see workdir.",
    )
    retries: Retries = Field(2, description="How often it is started again after it failed.")
    grace_period: Duration = Field(
        30_000,
        description="How long it may take to save and leave when it is told to. By default 30s.",
    )
    checkpoint_dir: PathText | None = Field(
        None, description="Where it keeps its checkpoints; by default a folder of its own."
    )
    data: PathTexts = Field((), description="Paths that must exist when it is submitted.")
    profile: ProfileEntry | None = Field(
        None,
        description="What `trainmaster profile program` measured of its program on one device; submit and"
        " run add it by themselves.",
    )
    max_runtime: Duration | None = Field(
        None, description="How long it may run in all, waiting not counted; then it is stopped."
    )
    deadline: Duration | None = Field(
        None, description="How long after the submission its result is needed."
    )
    iterations: Steps | None = Field(
        None, description="How many training steps it takes in all, if known."
    )
    array: Elements | None = Field(
        None,
        description="Several jobs of this file that differ in TRAINMASTER_ARRAY_INDEX: 0-99%8 is a"
        " hundred of them, eight at a time.",
    )
    depends_on: Dependencies = Field(
        (),
        description="Jobs to wait for, by id or name: 12 must succeed, 12:any must end, 12:fail must"
        " fail.",
    )
    container: Container | None = Field(None, description="Run the command in a container.")
    ranks: Literal["node", "gpu"] = Field(
        "node",
        description="node: one process on each node, which sees all GPUs of the job there. gpu: one"
        " process for each GPU.",
    )
    preemptible: bool = Field(
        True,
        description="false: once it runs, policies neither suspend nor move nor resize it. Its queue"
        " must allow that.",
    )
    stays_in_memory: bool = Field(
        True, description="Whether it may be suspended in memory, by stopping its processes."
    )
    count_steps: bool = Field(
        True,
        description="Count the optimizer steps of a PyTorch program that does not use the SDK, and"
        " show them as its progress. false leaves its PYTHONPATH alone.",
    )
    on_hang: Literal["report", "restart"] = Field(
        "report",
        description="What to do when it hangs: it makes no step, writes nothing and computes nothing for"
        " much longer than ever before. restart tells it to save and to end, and tries it again as after"
        " a failure, while it has retries left.",
    )
    preflight: bool = Field(
        True,
        description="Where it asks for several devices: run its first steps on one of them first, so that"
        " a bug does not cost them all. false: start on all of them at once.",
    )
    preflight_steps: Steps = Field(
        20, description="After how many steps that pre-run is over; after a minute in any case."
    )
    notify: Notify | None = Field(
        None,
        description="Whom to tell when it has ended: a mail address, https://… or slack:https://…, or a"
        " mapping with `to` and `on`.",
        json_schema_extra=_with_short_form,
    )
    held: bool = Field(
        False, description="Submit it, but do not run it before `trainmaster resume`."
    )

    @model_validator(mode="after")
    def _fits_together(self) -> JobFile:
        if self.gpus.is_part and self.sharing == "exclusive":
            raise ValueError(
                "sharing: exclusive gives whole GPUs only: ask for gpus: 1, or leave sharing out"
            )
        if self.gpus.most > 1 and self.sharing == "mps":
            raise ValueError(
                "sharing: mps is for jobs on one GPU, because every GPU has an MPS daemon of its own and a"
                " program can use only one of them: ask for gpus: 1 or a part of one, or sharing: time"
            )
        if self.on_hang == "restart" and self.retries == 0:
            raise ValueError(
                "on_hang restart is a retry, and retries 0 allows none: allow at least 1, or only report"
            )
        return self


def job_file_of(raw: object, lines: Lines | None = None) -> JobFile:
    """A checked job file, or a ConfigError."""
    if not isinstance(raw, Mapping):
        raise ConfigError(f"A job must be a mapping of keys such as command, not {shown(raw)}.")
    return checked(JobFile, raw, lines=lines)


def jobs_in_yaml(text: str) -> list[tuple[JobFile, Raw]]:
    """The jobs of a YAML file, checked; each with what was written."""
    found = [(job_file_of(raw, lines), cast(Raw, raw)) for raw, lines in read_documents(text)]
    if not found:
        raise ConfigError("The file has no job in it: it needs a command at least.")
    return found


def jobs_in_json(body: object) -> list[tuple[JobFile, Raw]]:
    """One job, or `{"jobs": [...]}` for several."""
    jobs = body.get("jobs") if isinstance(body, dict) and set(body) == {"jobs"} else [body]
    if not isinstance(jobs, list) or not jobs:
        raise ConfigError("jobs must be a list of at least one job.")
    found = []
    for number, raw in enumerate(jobs, start=1):
        try:
            check_plain(raw)
            found.append((job_file_of(raw), cast(Raw, raw)))
        except ConfigError as bad:
            if len(jobs) == 1:
                raise
            raise ConfigError(f"job {number} of {len(jobs)}: {bad}") from None
    return found
