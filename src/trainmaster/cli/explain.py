"""`trainmaster explain`: why a job waits, who is in its way, and when it should start."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainmaster.cli.live_options import AsJson, Data, JobName, Url
from trainmaster.cli.wording import examples

if TYPE_CHECKING:
    from trainmaster.cli.client import Json

EPILOG = examples("trainmaster explain 12", "trainmaster explain 12 --json")


def explain(job: JobName, as_json: AsJson = False, url: Url = None, data: Data = None) -> None:
    """Say why a job waits: the reason, its numbers, who holds what, the expected start."""
    from trainmaster.cli.client import connect, of
    from trainmaster.cli.live_words import write_json
    from trainmaster.cli.wording import screen

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
    if numbers:
        lines.append("Numbers: " + ", ".join(_number(*pair) for pair in numbers.items()) + ".")
    held_by = said.get("held_by") or ()
    if held_by:
        lines.append("In the way:")
        lines.extend(f"  {_holder(each)}" for each in held_by)
    forecast = said.get("forecast")
    if forecast:
        lines.append(_forecast(forecast))
    lines.extend(f"Note: {each}" for each in said.get("remarks") or ())
    return lines


def _number(name: str, value: object) -> str:
    shown = f"{value:g}" if isinstance(value, int | float) else str(value)
    return f"{name.replace('_', ' ')} {shown}"


def _holder(holder: object) -> str:
    """A job in the way: its id alone, or what the daemon says of it."""
    from trainmaster.cli.live_words import length

    if not isinstance(holder, dict):
        return f"job {holder}"
    words = [f"job {holder.get('id', holder.get('job', '?'))}"]
    if holder.get("name"):
        words.append(str(holder["name"]))
    if holder.get("user"):
        words.append(f"of {holder['user']}")
    if holder.get("gpus") is not None:
        words.append(f"holds {holder['gpus']:g} GPUs")
    if holder.get("devices"):
        words.append(f"({', '.join(holder['devices'])})")
    if holder.get("run_s") is not None:
        words.append(f"for {length(holder['run_s'])}")
    return " ".join(words)


def _forecast(forecast: Json) -> str:
    import time

    from trainmaster.cli.live_words import at, length

    basis = f" ({forecast['basis']})" if forecast.get("basis") else ""
    start = forecast.get("start_s")
    if start is None:
        return f"Expected start: not known{basis}."
    ahead = start - time.time()
    when = f"in {length(ahead)}, at {at(start)}" if ahead >= 1 else "now"
    return f"Expected start: {when}{basis}."
