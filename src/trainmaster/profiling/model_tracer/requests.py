"""What may be asked of a model, and the answer in a file."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from . import graph, memory
from .user_model import OF_STEP, CannotTrace, first_line, remedy_of

ASKED: Mapping[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
    "memory": memory.trace,
    "graph": graph.trace,
}


def main(request: str, result: str) -> None:
    """Write what was traced, or one sentence, into the result's file: an empty one as long as it works."""
    open(result, "w", encoding="utf-8").close()
    said = json.loads(request)
    try:
        answer = ASKED[said.pop("what")](said)
    except CannotTrace as trouble:
        answer = {"trouble": str(trouble)}
    except (Exception, SystemExit) as error:
        remedy = remedy_of(error, OF_STEP)
        answer = {"trouble": f"a training step fails ({first_line(error)}): {remedy}"}
    with open(result, "w", encoding="utf-8") as file:
        json.dump(answer, file)
