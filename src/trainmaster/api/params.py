"""Parameters that several pages take, as OpenAPI shows them."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import Path, Query

from trainmaster.config.units import LARGEST_INDEX

PRINTABLE = r"^[^\x00-\x1f\x7f]*$"
LATEST_S = 100_000_000_000
"""The year 5138, the largest time that is accepted."""

JobId = Annotated[
    str,
    Path(
        min_length=1,
        max_length=120,
        pattern=r"^[^/\x00-\x1f\x7f]+$",
        description="A job's id, or its name: then the newest of that name.",
        examples=["12", "12_3", "resnet"],
    ),
]
Force = Annotated[bool, Query(description="Do it even if work is lost that the job has not saved.")]
Now = Annotated[bool, Query(description="Kill it at once, without its grace period.")]
QueueName = Annotated[
    str,
    Path(
        min_length=1,
        max_length=100,
        pattern=r"^[^\s/\x00-\x1f\x7f]([^/\x00-\x1f\x7f]*[^\s/\x00-\x1f\x7f])?$",
        examples=["vision"],
    ),
]
InputPath = Annotated[
    str,
    Path(
        min_length=1,
        max_length=4096,
        pattern=r"^[^\x00-\x1f\x7f]+$",
        examples=["/data/train.rec"],
        description="The path, its slashes written as %2F.",
    ),
]
NodeName = Annotated[
    str,
    Path(min_length=1, max_length=255, pattern=r"^[^/\x00-\x1f\x7f]+$", examples=["n0"]),
]
Filter = Annotated[str | None, Query(max_length=100, pattern=PRINTABLE)]
States = Annotated[
    list[str] | None,
    Query(
        description="Only jobs in these states: separated by commas, or as a repeated parameter.",
        examples=[["running"], ["pending", "suspended"]],
    ),
]
Since = Annotated[
    float | None,
    Query(
        ge=0, le=LATEST_S, description="Only jobs submitted at this time or later, in Unix seconds."
    ),
]
FromTime = Annotated[
    float | None, Query(ge=0, le=LATEST_S, description="From this time on, in Unix seconds.")
]
Until = Annotated[
    float | None, Query(ge=0, le=LATEST_S, description="Until this time, in Unix seconds.")
]
Format = Annotated[
    Literal["json", "csv"] | None,
    Query(description="csv: a table for a spreadsheet, as with `Accept: text/csv`."),
]
Before = Annotated[
    str | None,
    Query(
        pattern=r"^[0-9]{1,15}(_[0-9]{1,10})?$",
        description="`next` of the previous page.",
        examples=["112"],
    ),
]
Limit = Annotated[int, Query(ge=1, le=1000, description="Jobs on a page.")]
Fold = Annotated[
    bool,
    Query(
        description="Of each array one row, its last job that matches; `arrays` counts the others."
    ),
]
Attempt = Annotated[
    int | None, Query(ge=0, le=LARGEST_INDEX, description="Attempt; by default the last.")
]
Rank = Annotated[
    str,
    Query(
        pattern=r"^([0-9]{1,9}|all)$",
        description="Rank of the process; `all` with follow.",
        examples=["0", "all"],
    ),
]
Tail = Annotated[
    int | None, Query(ge=0, le=10_000_000, description="Number of lines from the end.")
]
From = Annotated[
    int | None,
    Query(
        ge=0, le=1 << 50, description="Start at this byte of the stored output; see X-Log-Bytes."
    ),
]
