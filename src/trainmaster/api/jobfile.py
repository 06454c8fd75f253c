"""The job file: what somebody may say about a job, checked field by field."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, StrictBool, ValidationError, model_validator

from trainmaster.api.jobfile_fields import (
    Command,
    Cores,
    Dependencies,
    Duration,
    Elements,
    GpuAmount,
    JobName,
    Name,
    PathText,
    PathTexts,
    Priority,
    Retries,
    Size,
    Steps,
    Variables,
)
from trainmaster.api.units import Gpus, shown
from trainmaster.api.validation_errors import BadJobFile, Lines, sentence_of

LATER = {
    "secrets": "secrets come with users and tokens, which this version does not have: pass the value in"
    " env, or let the program read a file that only you can read.",
    "notify": "notify is not there yet, and nothing would be sent: leave it out, and watch the job by"
    " `trainmaster logs -f` or /api/v1/changes.",
}
"""Fields that are planned, and what to do until then."""


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
    command: Command = Field(description="A text for /bin/sh -c, or a list of words.")
    gpus: GpuAmount = Field(
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
    cpus: Cores | None = Field(
        None, description="CPU cores for each GPU: booked, and the most that it may use."
    )
    queue: Name = Field("default", description="The queue that it waits in.")
    user: Name | None = Field(None, description="Whose job it is; by default whoever submits it.")
    priority: Priority = Field(0, description="Higher goes first, where the policy looks at it.")
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
    env: Variables = Field(
        default_factory=dict, description="Environment variables of its processes."
    )
    workdir: PathText | None = Field(
        None, description="The folder that it runs in; by default where it was submitted from."
    )
    snapshot: StrictBool = Field(
        True,
        description="Copy the code in workdir at submission, so that editing a file while the job"
        " waits changes nothing.",
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
