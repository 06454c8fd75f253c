"""A job in detail as text: what it does or why it waits, its story, the end of its output."""

from __future__ import annotations

from trainmaster.cli.explain import lines_of
from trainmaster.cli.support.format import at
from trainmaster.client.manager_api import Json, ManagerApi, RequestRefused, job_path
from trainmaster.text.control_characters import visible, visible_line
from trainmaster.text.formatting import short_length

TAIL = 30
"""Lines of its output."""
MOST_BYTES = 20_000
"""Of them: a line may be very long."""


def job_text(client: ManagerApi, job: str) -> str:
    """All sections; what others wrote has its control characters as codes."""
    sections = (
        ("", "\n".join(map(visible_line, lines_of(client.get(job_path(job, "explain")))))),
        ("Story", "\n".join(_story(client, job))),
        ("Last output", _output(client, job)),
    )
    return "\n\n".join(
        f"{title}\n{text}" if title else text for title, text in sections if text.strip()
    )


def _story(client: ManagerApi, job: str) -> list[str]:
    entries = client.get(job_path(job, "story"))["story"]
    first = entries[0]["at_s"] if entries else 0
    return [_entry(each, first) for each in entries]


def _entry(entry: Json, first: float) -> str:
    after = short_length(entry["at_s"] - first)
    return f"{at(entry['at_s'])}  {after:>6}  {visible_line(entry['sentence'])}"


def _output(client: ManagerApi, job: str) -> str:
    try:
        written = b"".join(client.download(job_path(job, "logs"), {"tail": TAIL}))
    except RequestRefused as no:  # it has none yet, or is an array
        return visible_line(str(no))
    text = written[-MOST_BYTES:].decode("utf-8", "replace").replace("\r\n", "\n")
    return visible(text.expandtabs())
