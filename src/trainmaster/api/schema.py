"""The JSON Schema of the job file, from the model that checks it.

python -m trainmaster.api.schema > src/trainmaster/api/job.schema.json
"""

from __future__ import annotations

import json
import sys
from functools import cache
from importlib.resources import files
from typing import Any

from trainmaster.config.job_file import JobFile

DIALECT = "https://json-schema.org/draft/2020-12/schema"
DEFAULTS = {"gpus": 1, "grace_period": "30s", "tolerance": 0.03, "umask": "022"}
"""Defaults as a user would write them; the model keeps them as amounts."""


def job_schema(ref_template: str = "#/$defs/{model}") -> dict[str, Any]:
    """The schema as the model gives it, without pydantic's `null` for fields that may be left out."""
    made = JobFile.model_json_schema(by_alias=True, ref_template=ref_template)
    for properties in (
        made["properties"],
        *(each["properties"] for each in made["$defs"].values()),
    ):
        for name, field in properties.items():
            properties[name] = _tidy(field)
    for name, words in DEFAULTS.items():
        made["properties"][name]["default"] = words
    made["description"] = "A training program and what it asks for; only the command is needed."
    return {"$schema": DIALECT, **made}


def _tidy(field: dict[str, Any]) -> dict[str, Any]:
    """One property without its title, and without the choice of null."""
    kept = {key: value for key, value in field.items() if key != "title"}
    if kept.get("default", 0) is None:
        del kept["default"]
    choices = kept.get("anyOf")
    if choices and {"type": "null"} in choices:
        rest = [each for each in choices if each != {"type": "null"}]
        if len(rest) > 1:
            kept["anyOf"] = rest
        else:
            del kept["anyOf"]
            kept = {**rest[0], **kept}
    return kept


@cache
def published() -> str:
    """The schema as the package carries it."""
    return files("trainmaster.api").joinpath("job.schema.json").read_text(encoding="utf-8")


def text() -> str:
    """What the package should carry."""
    return json.dumps(job_schema(), indent=2, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    sys.stdout.write(text())
