"""A job file between a form and its text: YAML of a mapping, and back."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.events import AliasEvent
from ruamel.yaml.scalarstring import LiteralScalarString

from trainmaster.config.validation import ConfigError
from trainmaster.config.yaml_file import read_documents

HIDDEN = ("***", "(hidden)")
"""Stand for values that the API does not show."""
OWN = ("user", "profile")
"""Not taken along into a copy: whose job it is, and what was measured of it."""

LARGEST = 64 * 1024
"""Characters: reading and writing YAML takes some 5 s a megabyte, in which no page is answered."""


class NotYaml(ValueError):
    """One sentence."""


def as_yaml(spec: Mapping[str, Any]) -> str:
    """As a person would write it; what is very large as JSON, which is YAML too."""
    plain = json.dumps(spec, indent=2, ensure_ascii=False)
    if len(plain) > LARGEST:
        return f"{plain}\n"
    writer = YAML(typ="rt")
    writer.default_flow_style = False
    writer.width = 100
    writer.indent(mapping=2, sequence=4, offset=2)
    text = io.StringIO()
    writer.dump(_blocks(spec), text)
    return text.getvalue()


def _blocks(value: Any) -> Any:
    """Texts of several lines as blocks."""
    if isinstance(value, Mapping):
        return {key: _blocks(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_blocks(each) for each in value]
    if isinstance(value, str) and "\n" in value.strip() and value.isprintable() is False:
        return LiteralScalarString(value)
    return value


def from_yaml(text: str) -> dict[str, Any]:
    """The one job of a text, plainly; NotYaml where a form cannot show it."""
    if len(text) > LARGEST:
        raise NotYaml("The form shows no job file of more than 64 KiB: submit it from here.")
    try:
        documents = [value for value, _ in read_documents(text)]
    except ConfigError as error:
        raise NotYaml(str(error)) from None
    if "*" in text and any(isinstance(each, AliasEvent) for each in YAML(pure=True).parse(text)):
        raise NotYaml("The form does not show aliases (`*name`): submit the job from here.")
    if not documents:
        return {}
    if len(documents) > 1:
        raise NotYaml("The form shows one job, and this has several: submit them from here.")
    if not isinstance(documents[0], dict) or any(not isinstance(k, str) for k in documents[0]):
        raise NotYaml("This is no job file: write `command: ...` first.")
    return documents[0]


def for_copy(spec: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """A job file to submit again, and the variables whose values are hidden and so left out."""
    kept = {key: value for key, value in spec.items() if key not in OWN}
    env = kept.get("env")
    if not isinstance(env, Mapping):
        return kept, []
    hidden = [name for name, value in env.items() if value in HIDDEN]
    kept["env"] = {name: value for name, value in env.items() if name not in hidden}
    if not kept["env"]:
        del kept["env"]
    return kept, hidden
