"""`trainmaster queues`: the queues, with their guarantees and what they use."""

from __future__ import annotations

from collections.abc import Mapping

from trainmaster.cli.support.console import examples
from trainmaster.cli.support.options import AsJson, Data, Url

EPILOG = examples(
    "trainmaster queues",
    "trainmaster queues --json",
    "trainmaster queue set vision --weight 2 --guaranteed 4",
)


def queues(as_json: AsJson = False, url: Url = None, data: Data = None) -> None:
    """List queues: weight, guaranteed and maximum GPUs, GPUs in use, running and waiting jobs."""
    from rich.markup import escape

    from trainmaster.cli.support import format as words
    from trainmaster.cli.support.client import connect
    from trainmaster.cli.support.console import screen

    with connect(url, data) as client:
        answer = client.get("/queues")
    if as_json:
        words.write_json(answer)
        return
    made = words.table(
        *("queue", "in", "weight", "guaranteed", "maximum", "gpus held", "running", "waiting"),
        "held",
    )
    for each in answer["queues"]:
        cells = (
            *(each["name"], each["parent"], each["weight"], each["guaranteed_gpus"]),
            *(each["maximum_gpus"], each["gpus"], each["running"], each["waiting"], each["held"]),
        )
        made.add_row(*(escape(_cell(cell)) for cell in cells))
    screen().print(made)


def numbers_of(wanted: Mapping[str, object]) -> str:
    """What was set of a queue, in words."""
    said = (f"{key.removesuffix('_gpus')} {_cell(value)}" for key, value in wanted.items())
    return ", ".join(said) or "as it was"


def _cell(value: object) -> str:
    if value is None:
        return "-"
    return f"{value:g}" if isinstance(value, int | float) else str(value)
