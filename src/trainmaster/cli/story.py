"""`trainmaster story`: what happened to a job, from its submission on."""

from __future__ import annotations

from trainmaster.cli.live_options import AsJson, Data, JobName, Url
from trainmaster.cli.wording import examples

EPILOG = examples("trainmaster story 12", "trainmaster story 12 --json")


def story(job: JobName, as_json: AsJson = False, url: Url = None, data: Data = None) -> None:
    """Tell what happened to a job, a line for each thing, oldest first."""
    from rich.markup import escape

    from trainmaster.cli import live_words as words
    from trainmaster.cli.client import connect, of
    from trainmaster.cli.wording import screen

    with connect(url, data) as client:
        said = client.get(of(job, "story"))
    if as_json:
        words.write_json(said)
        return
    made = words.table("when", "after", "what", "details")
    made.columns[-1].no_wrap = False
    made.columns[-1].overflow = "fold"
    first = said["story"][0]["at_s"] if said["story"] else 0
    for each in said["story"]:
        made.add_row(
            words.at(each["at_s"]),
            words.length(each["at_s"] - first),
            escape(each["what"]),
            escape(detail_text(each.get("detail"))),
        )
    screen().print(made)


def detail_text(detail: object) -> str:
    """The details of one thing that happened, in words."""
    if isinstance(detail, dict):
        stated = {key: value for key, value in detail.items() if value not in (None, "", [], {})}
        sentence = stated.pop("sentence", None)
        rest = ", ".join(
            f"{key.replace('_', ' ')} {_plain(value)}" for key, value in stated.items()
        )
        return " ".join(part for part in (sentence, rest) if part)
    return "" if detail is None else str(detail)


def _plain(value: object) -> str:
    if isinstance(value, list):
        return ", ".join(map(_plain, value))
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:g}" if isinstance(value, float) else str(value)
