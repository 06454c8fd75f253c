"""Fields of a job file: how each is read, and how the JSON Schema shows it."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Annotated, Any

from pydantic import PlainValidator, WithJsonSchema

from trainmaster.api import units as quantities
from trainmaster.api.units import Gpus, shown
from trainmaster.daemon.service_api import Array, Dependency
from trainmaster.model.units import WHOLE

MOST_CPUS = 10_000
BIGGEST_PRIORITY = 1_000_000

NAME = re.compile(r"[^\s/\x00-\x1f\x7f](?:[^/\x00-\x1f\x7f]{0,98}[^\s/\x00-\x1f\x7f])?")
VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
NAME_PATTERN = r"^[^\s/\x00-\x1f\x7f]([^/\x00-\x1f\x7f]{0,98}[^\s/\x00-\x1f\x7f])?$"


def read_name(value: object) -> str:
    if isinstance(value, int) and not isinstance(value, bool):
        value = str(value)
    if not isinstance(value, str) or not NAME.fullmatch(value):
        raise ValueError(
            f"must be 1 to 100 characters without a slash or line break, not {shown(value)}"
        )
    return value


def read_job_name(value: object) -> str:
    name = read_name(value)
    if quantities.JOB_ID.fullmatch(name):
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


def read_path(value: object) -> str:
    if not isinstance(value, str) or not value.strip():
        raise ValueError(f"must be a path, not {shown(value)}")
    return value


def read_paths(value: object) -> tuple[str, ...]:
    given = value if isinstance(value, list) else [value]
    return tuple(read_path(each) for each in given)


def reads_whole(least: int, most: int) -> Callable[[object], int]:
    def read(value: object) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            raise ValueError(
                f"must be a whole number from {least:,} to {most:,}, not {shown(value)}"
            )
        return value

    return read


def written(schema: Mapping[str, Any]) -> WithJsonSchema:
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

Duration = Annotated[int, PlainValidator(quantities.duration_ms), written(DURATION_SCHEMA)]
Size = Annotated[int, PlainValidator(quantities.size_bytes), written(SIZE_SCHEMA)]
Name = Annotated[str, PlainValidator(read_name), written(NAME_SCHEMA)]
JobName = Annotated[str, PlainValidator(read_job_name), written(NAME_SCHEMA)]
PATH_SCHEMA = {"type": "string", "minLength": 1, "pattern": r"\S"}


def _whole(least: int, most: int) -> tuple[PlainValidator, WithJsonSchema]:
    """A whole number within bounds: how it is read, and how it is shown."""
    schema = {"type": "integer", "minimum": least, "maximum": most}
    return PlainValidator(reads_whole(least, most)), written(schema)


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
PATHS_SCHEMA = {"anyOf": [PATH_SCHEMA, {"type": "array", "items": PATH_SCHEMA}]}
DEPENDENCIES_SCHEMA = {
    "anyOf": [*DEPENDENCY_SCHEMA["anyOf"], {"type": "array", "items": DEPENDENCY_SCHEMA}]
}

Command = Annotated[str | tuple[str, ...], PlainValidator(read_command), written(COMMAND_SCHEMA)]
GpuAmount = Annotated[Gpus, PlainValidator(quantities.gpus_of), written(GPUS_SCHEMA)]
Cores = Annotated[int, PlainValidator(read_cpus), written(CPUS_SCHEMA)]
Variables = Annotated[dict[str, str], PlainValidator(read_env), written(ENV_SCHEMA)]
PathText = Annotated[str, PlainValidator(read_path), written(PATH_SCHEMA)]
PathTexts = Annotated[tuple[str, ...], PlainValidator(read_paths), written(PATHS_SCHEMA)]
Priority = Annotated[int, *_whole(-BIGGEST_PRIORITY, BIGGEST_PRIORITY)]
Retries = Annotated[int, *_whole(0, 1000)]
Steps = Annotated[int, *_whole(1, 10**15)]
Elements = Annotated[Array, PlainValidator(quantities.array_of), written(ARRAY_SCHEMA)]
Dependencies = Annotated[
    tuple[Dependency, ...],
    PlainValidator(quantities.dependencies_of),
    written(DEPENDENCIES_SCHEMA),
]
