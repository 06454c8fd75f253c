"""`trainmaster explain`: why a job waits, who is in its way, and when it should start."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainmaster.cli.support.console import examples
from trainmaster.cli.support.options import AsJson, Data, JobName, Url

if TYPE_CHECKING:
    from trainmaster.cli.support.client import Json

EPILOG = examples("trainmaster explain 12", "trainmaster explain 12 --json")
NUMBERS = {"need": "needed", "free": "free", "largest_block": "free together"}


def explain(job: JobName, as_json: AsJson = False, url: Url = None, data: Data = None) -> None:
    """Explain why a job waits: the reason with its numbers, the jobs in its way, the expected start."""
    from trainmaster.cli.support.client import connect, of
    from trainmaster.cli.support.console import screen
    from trainmaster.cli.support.format import write_json

    with connect(url, data) as client:
        said = client.get(of(job, "explain"))
    if as_json:
        write_json(said)
        return
    console = screen()
    for line in lines_of(said):
        console.print(line, markup=False)


def lines_of(said: Json) -> list[str]:
    """The explanation, a line for each thing that is known."""
    code = f" ({said['code']})" if said.get("code") else ""
    lines = [f"{said['sentence']}{code}"]
    numbers = said.get("numbers") or {}
    stated = [f"{word} {numbers[key]:g}" for key, word in NUMBERS.items() if key in numbers]
    if stated:
        lines.append(f"GPUs: {', '.join(stated)}.")
    held_by = said.get("held_by") or ()
    if held_by:
        lines.append("In the way:")
        lines.extend(f"  {_holder(each)}" for each in held_by)
    forecast = said.get("forecast")
    if forecast:
        lines.append(_forecast(forecast))
    lines.extend(f"Note: {each}" for each in said.get("remarks") or ())
    return lines


def _holder(holder: Json) -> str:
    """A job in the way, and what it holds."""
    devices = ", ".join(holder["devices"])
    holds = f"holds {devices}" if devices else f"asks for GPUs: {holder['gpus']:g}"
    return f"job {holder['id']} {holder['name']} of {holder['user']}, {holder['state']}, {holds}"


def _forecast(forecast: Json) -> str:
    import time

    from trainmaster.cli.support.format import at, length

    basis = f" ({forecast['basis'].rstrip('.')})" if forecast["basis"] else ""
    start = forecast["start_s"]
    if start is None:
        return f"Expected start: not known{basis}."
    ahead = start - time.time()
    when = f"in {length(ahead)}, at {at(start)}" if ahead >= 1 else "now"
    return f"Expected start: {when}{basis}."
