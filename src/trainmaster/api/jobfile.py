"""The job file: what somebody may say about a job, checked field by field."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Mapping
from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    PlainValidator,
    StrictBool,
    ValidationError,
    WithJsonSchema,
    model_validator,
)

from trainmaster.api import quantities
from trainmaster.api.complaints import BadJobFile, Lines, sentence_of
from trainmaster.api.quantities import Gpus, shown
from trainmaster.daemon.contract import Array, Dependency
from trainmaster.model.units import WHOLE

MOST_TEXT = 1 << 20
MOST_VALUES = 200_000
DEEPEST = 20
LARGEST = 1 << 53
MOST_CPUS = 10_000
BIGGEST_PRIORITY = 1_000_000

NAME = re.compile(r"[^\s/\x00-\x1f\x7f](?:[^/\x00-\x1f\x7f]{0,98}[^\s/\x00-\x1f\x7f])?")
VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
NAME_PATTERN = r"^[^\s/\x00-\x1f\x7f]([^/\x00-\x1f\x7f]{0,98}[^\s/\x00-\x1f\x7f])?$"

LATER = {
    "secrets": "secrets come with users and tokens, which this version does not have: pass the value in"
    " env, or let the program read a file that only you can read.",
    "notify": "notify is not there yet, and nothing would be sent: leave it out, and watch the job by"
    " `trainmaster logs -f` or /api/v1/changes.",
}
"""Fields that are planned, and what to do until then."""


def _name(value: object) -> str:
    if isinstance(value, int) and not isinstance(value, bool):
        value = str(value)
    if not isinstance(value, str) or not NAME.fullmatch(value):
        raise ValueError(
            f"must be 1 to 100 characters without a slash or line break, not {shown(value)}"
        )
    return value


def _job_name(value: object) -> str:
    name = _name(value)
    if quantities.JOB_ID.fullmatch(name):
        raise ValueError(f"must not look like a job's id, as {shown(value)} does: put a letter in")
    return name


def _command(value: object) -> tuple[str, ...] | str:
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


def _cpus(value: object) -> int:
    if (
        isinstance(value, bool)
        or not isinstance(value, int | float)
        or not 0.001 <= value <= MOST_CPUS
    ):
        raise ValueError(f"must be a number of cores such as 4 or 0.5, not {shown(value)}")
    return round(value * WHOLE)


def _env(value: object) -> dict[str, str]:
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


def _path(value: object) -> str:
    if not isinstance(value, str) or not value.strip():
        raise ValueError(f"must be a path, not {shown(value)}")
    return value


def _paths(value: object) -> tuple[str, ...]:
    given = value if isinstance(value, list) else [value]
    return tuple(_path(each) for each in given)


def _whole(least: int, most: int) -> Callable[[object], int]:
    def read(value: object) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            raise ValueError(
                f"must be a whole number from {least:,} to {most:,}, not {shown(value)}"
            )
        return value

    return read


def _pattern(schema: Mapping[str, Any]) -> WithJsonSchema:
    return WithJsonSchema(dict(schema))


DURATION_SCHEMA = {
    "anyOf": [
        {"type": "number", "minimum": 0.001, "maximum": 315_360_000},
        {"type": "string", "pattern": r"^ *([0-9]+(\.[0-9]+)? *(ms|s|m|h|d) *)+$"},
    ],
    "examples": ["90s", "30m", "4h", "2d"],
}
SIZE_SCHEMA = {
    "anyOf": [
        {"type": "integer", "minimum": 1, "maximum": quantities.MOST_BYTES},
        {"type": "string", "pattern": r"^ *[0-9]+(\.[0-9]+)? *([kKmMgGtT]?i?[bB]?) *$"},
    ],
    "examples": ["16GiB", "16G", "512M"],
}
NAME_SCHEMA = {"type": "string", "minLength": 1, "maxLength": 100, "pattern": NAME_PATTERN}
GPUS_SCHEMA = {
    "anyOf": [
        {"type": "integer", "minimum": 1, "maximum": quantities.MOST_GPUS},
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
        {"type": "integer", "minimum": 1, "maximum": quantities.MOST_ELEMENTS},
        {"type": "string", "pattern": r"^[0-9]+(-[0-9]+)?(,[0-9]+(-[0-9]+)?)*(%[1-9][0-9]*)?$"},
        {
            "type": "array",
            "items": {"type": "integer", "minimum": 0, "maximum": quantities.LARGEST_INDEX},
            "minItems": 1,
            "maxItems": quantities.MOST_ELEMENTS,
            "uniqueItems": True,
        },
    ],
    "examples": ["0-99%8", 100, [1, 5, 9]],
}
DEPENDENCY_SCHEMA = {
    "anyOf": [
        {"type": "integer", "minimum": 0, "maximum": 10**15 - 1},
        {"type": "string", "pattern": r"^[0-9]{1,15}(_[0-9]{1,10})?(:(ok|any|fail))?$"},
    ]
}

Duration = Annotated[int, PlainValidator(quantities.duration_ms), _pattern(DURATION_SCHEMA)]
Size = Annotated[int, PlainValidator(quantities.size_bytes), _pattern(SIZE_SCHEMA)]
Name = Annotated[str, PlainValidator(_name), _pattern(NAME_SCHEMA)]
JobName = Annotated[str, PlainValidator(_job_name), _pattern(NAME_SCHEMA)]
PATH_SCHEMA = {"type": "string", "minLength": 1, "pattern": r"\S"}


class Container(BaseModel):
    """A container that the command runs in: one of the three programs, which must be installed."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    apptainer: str | None = Field(None, description="Image for `apptainer exec`.", min_length=1)
    enroot: str | None = Field(
        None, description="Image or container for `enroot start`.", min_length=1
    )
    docker: str | None = Field(None, description="Image for `docker run`.", min_length=1)
    options: tuple[str, ...] = Field((), description="More options for that program, word by word.")

    @model_validator(mode="after")
    def _has_one(self) -> Container:
        if len([each for each in (self.apptainer, self.enroot, self.docker) if each]) != 1:
            raise ValueError("must name one of apptainer, enroot or docker with its image")
        return self

    @property
    def program(self) -> str:
        return "apptainer" if self.apptainer else "enroot" if self.enroot else "docker"

    @property
    def image(self) -> str:
        return self.apptainer or self.enroot or self.docker or ""


class JobFile(BaseModel):
    """A training program and what it asks for. Everything but the command may be left out."""

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
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

    name: JobName | None = Field(
        None, description="What to call it; by default its program's name."
    )
    command: Annotated[
        str | tuple[str, ...],
        PlainValidator(_command),
        _pattern(
            {
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
        ),
    ] = Field(description="A text for /bin/sh -c, or a list of words.")
    gpus: Annotated[Gpus, PlainValidator(quantities.gpus_of), _pattern(GPUS_SCHEMA)] = Field(
        Gpus(1, 1),
        description="How many GPUs: 8; 2-8 for a job that can be resized; 0.5 for a part of one;"
        " H100:2 for a type. By default 1. On a machine without GPUs, CPU slots stand in.",
    )
    gpu_memory: Size | None = Field(
        None, description="GPU memory that it needs on each GPU; by default it is measured."
    )
    memory: Size | None = Field(
        None, description="Host memory for each GPU: booked, and the most that it may use."
    )
    cpus: (
        Annotated[
            int,
            PlainValidator(_cpus),
            _pattern(
                {"type": "number", "minimum": 0.001, "maximum": MOST_CPUS, "examples": [4, 0.5]}
            ),
        ]
        | None
    ) = Field(None, description="CPU cores for each GPU: booked, and the most that it may use.")
    queue: Name = Field("default", description="The queue that it waits in.")
    user: Name | None = Field(None, description="Whose job it is; by default whoever submits it.")
    priority: Annotated[
        int,
        PlainValidator(_whole(-BIGGEST_PRIORITY, BIGGEST_PRIORITY)),
        _pattern({"type": "integer", "minimum": -BIGGEST_PRIORITY, "maximum": BIGGEST_PRIORITY}),
    ] = Field(0, description="Higher goes first, where the policy looks at it.")
    role: Literal["guaranteed", "opportunistic"] = Field(
        "guaranteed",
        alias="class",
        description="guaranteed is owed its speed; opportunistic lives on what is left over.",
    )
    sharing: Literal["exclusive", "mps", "time"] | None = Field(
        None,
        description="How its GPU may be shared; by default exclusive for whole GPUs, mps for parts.",
    )
    model: Name | None = Field(None, description="The model it trains, such as resnet50, if known.")
    env: Annotated[
        dict[str, str],
        PlainValidator(_env),
        _pattern(
            {
                "type": "object",
                "propertyNames": {"pattern": "^[A-Za-z_][A-Za-z0-9_]*$"},
                "additionalProperties": {"type": ["string", "number"]},
                "examples": [{"NCCL_DEBUG": "INFO", "EPOCHS": 10}],
            }
        ),
    ] = Field(default_factory=dict, description="Environment variables of its processes.")
    workdir: Annotated[str, PlainValidator(_path), _pattern(PATH_SCHEMA)] | None = Field(
        None, description="The folder that it runs in; by default where it was submitted from."
    )
    snapshot: StrictBool = Field(
        True,
        description="Copy the code in workdir at submission, so that editing a file while the job"
        " waits changes nothing.",
    )
    retries: Annotated[
        int,
        PlainValidator(_whole(0, 1000)),
        _pattern({"type": "integer", "minimum": 0, "maximum": 1000}),
    ] = Field(2, description="How often it is started again after it failed.")
    grace_period: Duration = Field(
        30_000,
        description="How long it may take to save and leave when it is told to. By default 30s.",
    )
    checkpoint_dir: Annotated[str, PlainValidator(_path), _pattern(PATH_SCHEMA)] | None = Field(
        None, description="Where it keeps its checkpoints; by default a folder of its own."
    )
    data: Annotated[
        tuple[str, ...],
        PlainValidator(_paths),
        _pattern({"anyOf": [PATH_SCHEMA, {"type": "array", "items": PATH_SCHEMA}]}),
    ] = Field((), description="Paths that must exist when it is submitted.")
    max_runtime: Duration | None = Field(
        None, description="How long it may run in all, waiting not counted; then it is stopped."
    )
    deadline: Duration | None = Field(
        None, description="How long after the submission its result is needed."
    )
    iterations: (
        Annotated[
            int,
            PlainValidator(_whole(1, 10**15)),
            _pattern({"type": "integer", "minimum": 1, "maximum": 10**15}),
        ]
        | None
    ) = Field(None, description="How many training steps it takes in all, if known.")
    array: Annotated[Array, PlainValidator(quantities.array_of), _pattern(ARRAY_SCHEMA)] | None = (
        Field(
            None,
            description="Several jobs of this file that differ in TRAINMASTER_ARRAY_INDEX: 0-99%8 is a"
            " hundred of them, eight at a time.",
        )
    )
    depends_on: Annotated[
        tuple[Dependency, ...],
        PlainValidator(quantities.dependencies_of),
        _pattern(
            {"anyOf": [*DEPENDENCY_SCHEMA["anyOf"], {"type": "array", "items": DEPENDENCY_SCHEMA}]}
        ),
    ] = Field(
        (),
        description="Jobs to wait for by id: 12 must succeed, 12:any must end, 12:fail must fail.",
    )
    container: Container | None = Field(None, description="Run the command in a container.")
    ranks: Literal["gpu", "node"] | None = Field(
        None,
        description="One process for each GPU, or for each node. By default gpu; node where the"
        " command is itself a launcher such as torchrun.",
    )
    stays_in_memory: StrictBool = Field(
        True, description="Whether it may be suspended in memory, by stopping its processes."
    )
    held: StrictBool = Field(
        False, description="Submit it, but do not run it before `trainmaster resume`."
    )

    @model_validator(mode="after")
    def _fits_together(self) -> JobFile:
        if self.gpus.is_part and self.sharing == "exclusive":
            raise ValueError(
                "sharing: exclusive gives whole GPUs only: ask for gpus: 1, or leave sharing out"
            )
        return self


FIELDS: Collection[str] = tuple(field.alias or name for name, field in JobFile.model_fields.items())


def job_file_of(raw: object, lines: Lines | None = None) -> JobFile:
    """A checked job file, or BadJobFile with one sentence."""
    if not isinstance(raw, Mapping):
        raise BadJobFile(f"A job must be a mapping of fields such as command, not {shown(raw)}.")
    where = (lines or {}).get
    for name, value in raw.items():
        line = where((name,))
        prefix = f"line {line}: " if line else ""
        if name in LATER:
            raise BadJobFile(prefix + LATER[name])
        if value is None and name in FIELDS:
            raise BadJobFile(f"{prefix}{name} is empty: give it a value, or leave the field out.")
    try:
        return JobFile.model_validate(raw)
    except ValidationError as error:
        raise BadJobFile(sentence_of(error, FIELDS, lines)) from None


def check_plain(value: object) -> None:
    """Refuse what no text can hold: endless nesting, NUL and half characters, numbers without bounds."""
    left = MOST_VALUES
    todo: list[tuple[object, int]] = [(value, 0)]
    while todo:
        each, depth = todo.pop()
        left -= 1
        if depth > DEEPEST or left < 0:
            raise BadJobFile("The job file is nested too deeply or has too many values.")
        if isinstance(each, str):
            _check_text(each)
        elif isinstance(each, float) and not math.isfinite(each):
            raise BadJobFile("Numbers of a job file must be finite: .inf and .nan are not.")
        elif isinstance(each, int) and abs(each) > LARGEST:
            raise BadJobFile(f"The number {str(each)[:30]} of the job file is too large.")
        elif isinstance(each, Mapping):
            todo.extend((name, depth + 1) for name in each)
            todo.extend((inner, depth + 1) for inner in each.values())
        elif isinstance(each, list):
            todo.extend((inner, depth + 1) for inner in each)


def _check_text(text: str) -> None:
    if len(text) > MOST_TEXT:
        raise BadJobFile("A text of the job file is longer than a million characters.")
    if "\x00" in text or any("\ud800" <= sign <= "\udfff" for sign in text):
        raise BadJobFile(
            f"The text {shown(text)} of the job file has a character that cannot be stored."
        )
